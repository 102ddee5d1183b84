import type { KeyObject, X509Certificate } from 'node:crypto';
import { isoSeconds } from '../clock.js';
import type { Certificate } from '../pki/index.js';

/** A certificate as `-o json` shows it. */
export interface CertificateView {
  /** One line, "CN=…, O=…"; empty when the certificate has none. */
  readonly subject: string;
  readonly issuer: string;
  readonly uriSans: readonly string[];
  /** Hexadecimal. */
  readonly serialNumber: string;
  readonly notBefore: string;
  readonly notAfter: string;
  /** "ECDSA P-256", "RSA 2048". */
  readonly key: string;
  readonly isCa: boolean;
  /** SHA-256, hexadecimal. */
  readonly fingerprint: string;
}

export function viewCertificate(certificate: Certificate): CertificateView {
  return {
    subject: nameText(certificate.x509.subject),
    issuer: nameText(certificate.x509.issuer),
    uriSans: certificate.uriSans,
    serialNumber: certificate.serialNumber,
    notBefore: isoSeconds(certificate.notBefore),
    notAfter: isoSeconds(certificate.notAfter),
    key: keyText(certificate.x509),
    isCa: certificate.isCa,
    fingerprint: certificate.fingerprint,
  };
}

/** Node gives one attribute a line, and nothing at all for an empty name. */
function nameText(name: string | undefined): string {
  return (name ?? '')
    .split('\n')
    .filter((line) => line !== '')
    .join(', ');
}

function keyText(x509: X509Certificate): string {
  let key: KeyObject;
  try {
    key = x509.publicKey;
  } catch {
    return 'a kind that cannot be read';
  }
  const details = key.asymmetricKeyDetails;
  switch (key.asymmetricKeyType) {
    case 'ec':
      return `ECDSA ${CURVES.get(details?.namedCurve ?? '') ?? details?.namedCurve ?? ''}`;
    case 'rsa':
      return `RSA ${details?.modulusLength ?? ''}`;
    default:
      return key.asymmetricKeyType ?? 'unknown';
  }
}

const CURVES = new Map([
  ['prime256v1', 'P-256'],
  ['secp384r1', 'P-384'],
  ['secp521r1', 'P-521'],
]);
