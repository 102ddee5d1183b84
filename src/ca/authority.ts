import type { KeyObject } from 'node:crypto';
import {
  type Certificate,
  type CertificateTemplate,
  generatePrivateKey,
  type Issuer,
  issueCertificate,
  issuerOf,
  type KeyAlgorithm,
  parseCertificate,
  randomSerialNumber,
  selfSign,
  subjectPublicKeyInfo,
} from '../pki/index.js';

/** A CA certificate with its private key. */
export interface KeyedCertificate {
  readonly certificate: Certificate;
  readonly key: KeyObject;
}

/** Everything that is needed to sign leaves. */
export interface Authority {
  /** The certificate that signs. */
  readonly certificate: Certificate;
  readonly issuer: Issuer;
  /** What follows the leaf in a chain: the signer first, then what is above it, without the root. */
  readonly intermediates: readonly Certificate[];
  readonly roots: readonly Certificate[];
  /** When all of its certificates are valid, in milliseconds since the epoch. */
  readonly notBefore: number;
  readonly notAfter: number;
}

/** The authority of a signer below certificates that lead to the roots. */
export function authorityOf(
  signer: KeyedCertificate,
  intermediates: readonly Certificate[],
  roots: readonly Certificate[],
): Authority {
  // Leaves need one valid root, not all of them; other roots may even have expired.
  const path = [signer.certificate, ...intermediates];
  return {
    certificate: signer.certificate,
    issuer: issuerOf(signer.certificate, signer.key),
    intermediates,
    roots,
    notBefore: Math.max(...path.map(({ notBefore }) => notBefore), Math.min(...roots.map((root) => root.notBefore))),
    notAfter: Math.min(...path.map(({ notAfter }) => notAfter), Math.max(...roots.map((root) => root.notAfter))),
  };
}

export interface AuthoritySettings {
  readonly trustDomain: string;
  readonly algorithm: KeyAlgorithm;
  readonly random: (size: number) => Buffer;
  /** Milliseconds since the epoch, as for the two that follow. */
  readonly now: number;
  readonly backdate: number;
  readonly lifetime: number;
}

/** A new self-signed root. */
export async function createRoot(settings: AuthoritySettings): Promise<KeyedCertificate> {
  const key = await generatePrivateKey(settings.algorithm);
  const certificate = parseCertificate(selfSign(template(settings, key, 'root', {}), key));
  return { certificate, key };
}

/** A new intermediate below `root`, which may have no other CA below it and never outlives the root. */
export async function createIntermediate(
  settings: AuthoritySettings,
  root: KeyedCertificate,
): Promise<KeyedCertificate> {
  const key = await generatePrivateKey(settings.algorithm);
  const wanted = template(settings, key, 'intermediate', { pathLength: 0 });
  const bounded = {
    ...wanted,
    notBefore: Math.max(wanted.notBefore, root.certificate.notBefore),
    notAfter: Math.min(wanted.notAfter, root.certificate.notAfter),
  };
  return { certificate: parseCertificate(issueCertificate(bounded, issuerOf(root.certificate, root.key))), key };
}

/**
 * The serial number is part of the name, so that no two roots share a subject: a verifier that knows both during a root
 * change then finds the right one at once. The SAN is the trust domain's own SPIFFE ID: X509-SVID section 4.1 wants a
 * signing certificate to be an SVID itself, and section 2 lets that have no path.
 */
function template(
  { trustDomain, random, now, backdate, lifetime }: AuthoritySettings,
  key: KeyObject,
  role: 'root' | 'intermediate',
  limits: { pathLength?: number },
): CertificateTemplate {
  const serialNumber = randomSerialNumber(random);
  const short = serialNumber.subarray(0, 4).toString('hex');
  return {
    subject: { organization: trustDomain, commonName: `sdsd local CA ${role} ${short}` },
    subjectPublicKeyInfo: subjectPublicKeyInfo(key),
    serialNumber,
    notBefore: now - backdate,
    notAfter: now + lifetime,
    uriSans: [`spiffe://${trustDomain}`],
    profile: { kind: 'ca', ...limits },
  };
}
