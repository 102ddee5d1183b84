import type { X509Certificate } from 'node:crypto';

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
