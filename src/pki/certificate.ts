import { createHash, X509Certificate } from 'node:crypto';
import { messageOf, SdsdError } from '../errors.js';
import { pemBlocks, toPem } from './pem.js';
import { urisOf } from './subject-alt-name.js';
import { readX509Fields, type X509Fields } from './x509-fields.js';

/** One X.509 certificate, parsed once. */
export interface Certificate {
  readonly der: Buffer;
  /** One CERTIFICATE block that ends in exactly one newline. */
  readonly pem: string;
  readonly x509: X509Certificate;
  /** Milliseconds since the epoch. */
  readonly notBefore: number;
  /** Milliseconds since the epoch: the last moment at which the certificate is valid. */
  readonly notAfter: number;
  /** Hexadecimal, upper case, without leading zero octets. */
  readonly serialNumber: string;
  /** In the order of the SAN extension. */
  readonly uriSans: readonly string[];
  readonly isCa: boolean;
  readonly selfSigned: boolean;
  /** SHA-256 of the DER, hexadecimal, lower case. */
  readonly fingerprint: string;
}

/** The certificate in one DER value (RFC 5280). Throws `ERR_SDSD_CERTIFICATE` when it is malformed, or more follows it. */
export function parseCertificate(der: Buffer): Certificate {
  try {
    return certificateOf(der);
  } catch (cause) {
    throw unreadable('the certificate', cause);
  }
}

/**
 * Every certificate of PEM data, in order, from blocks labelled CERTIFICATE, X509 CERTIFICATE or TRUSTED CERTIFICATE
 * (OpenSSL's own form, whose trust settings are dropped); other blocks are skipped. Throws `ERR_SDSD_PEM` for broken PEM
 * and when there is no certificate, and `ERR_SDSD_CERTIFICATE`, with the number of the block, for one that is malformed.
 */
export function parseCertificates(pem: Buffer): Certificate[] {
  const certificates: Certificate[] = [];
  for (const [index, { label, der }] of pemBlocks(pem).entries()) {
    if (!labels.has(label)) continue;
    try {
      certificates.push(certificateOf(label === TRUSTED ? firstValue(der) : der));
    } catch (cause) {
      throw unreadable(`PEM block ${index + 1} (${label})`, cause);
    }
  }
  if (certificates.length === 0) {
    throw new SdsdError('ERR_SDSD_PEM', 'no certificate is among the PEM blocks', {
      hint: 'give PEM data with at least one CERTIFICATE block',
    });
  }
  return certificates;
}

const TRUSTED = 'TRUSTED CERTIFICATE';
const labels: ReadonlySet<string> = new Set(['CERTIFICATE', 'X509 CERTIFICATE', TRUSTED]);

function certificateOf(der: Buffer): Certificate {
  const x509 = new X509Certificate(der);
  const fields = readX509Fields(der);
  return Object.freeze({
    der,
    pem: toPem('CERTIFICATE', der),
    x509,
    notBefore: fields.notBefore,
    notAfter: fields.notAfter,
    serialNumber: fields.serialNumber,
    uriSans: Object.freeze(urisOf(fields.altNames)),
    isCa: fields.isCa,
    selfSigned: isSelfSigned(x509, fields),
    fingerprint: createHash('sha256').update(der).digest('hex'),
  });
}

function isSelfSigned(x509: X509Certificate, { issuer, subject }: X509Fields): boolean {
  return issuer.equals(subject) && x509.verify(x509.publicKey);
}

/** The first of several DER values. */
function firstValue(der: Buffer): Buffer {
  const short = der[1] ?? 0;
  const lengthOctets = short < 0x80 ? 0 : short & 0x7f;
  if (lengthOctets > 4) throw new Error('its length is malformed');
  const length = lengthOctets === 0 ? short : der.readUIntBE(2, lengthOctets);
  return der.subarray(0, 2 + lengthOctets + length);
}

function unreadable(what: string, cause: unknown): SdsdError {
  return new SdsdError('ERR_SDSD_CERTIFICATE', `${what} cannot be read: ${messageOf(cause)}`, {
    hint: 'write the certificate again from its source; openssl x509 -noout -text shows what is in it',
    cause,
  });
}
