import { createHash, type KeyObject, randomBytes } from 'node:crypto';
import { messageOf, SdsdError } from '../errors.js';
import {
  boolean,
  encode,
  encoded,
  explicit,
  implicit,
  integer,
  type Node,
  octetsOf,
  oid,
  primitive,
  sequence,
  set,
} from './asn1.js';
import type { Certificate } from './certificate.js';
import { Oid } from './oids.js';
import { type SignatureAlgorithm, signatureAlgorithmOf, signedDer } from './signature.js';
import { subjectAltName } from './subject-alt-name.js';
import { subjectPublicKeyInfo } from './subject-public-key-info.js';
import { readX509Fields } from './x509-fields.js';

export interface CertificateTemplate {
  /** Both left out: an empty subject, and a critical SAN. Longer names are cut to 64 characters, X.520's upper bound. */
  readonly subject: { readonly commonName?: string; readonly organization?: string };
  /** DER, as {@link subjectPublicKeyInfo} gives it. */
  readonly subjectPublicKeyInfo: Buffer;
  /** Big-endian magnitude; see {@link randomSerialNumber}. */
  readonly serialNumber: Buffer;
  /** Milliseconds since the epoch; X.509 has whole seconds, and the fraction is cut off. */
  readonly notBefore: number;
  /** Milliseconds since the epoch; as for `notBefore`. */
  readonly notAfter: number;
  readonly uriSans: readonly string[];
  /** A leaf serves and calls over TLS; a CA signs certificates and CRLs, with at most `pathLength` CAs below it. */
  readonly profile: { readonly kind: 'leaf' } | { readonly kind: 'ca'; readonly pathLength?: number };
}

/** Who signs, prepared once for many certificates. */
export interface Issuer {
  /** The subject of the issuer's certificate, DER. */
  readonly name: Buffer;
  readonly keyIdentifier: Buffer;
  readonly key: KeyObject;
  readonly algorithm: SignatureAlgorithm;
}

/** The issuer that a CA certificate and its private key are. Throws `ERR_SDSD_KEY` for a key that sdsd cannot sign with. */
export function issuerOf(certificate: Certificate, key: KeyObject): Issuer {
  const { subject, subjectKeyIdentifier } = readX509Fields(certificate.der);
  const keyIdentifier = subjectKeyIdentifier ?? keyIdentifierOf(subjectPublicKeyInfo(key));
  return issuerWith(subject, keyIdentifier, key);
}

/**
 * A certificate in DER, signed by `issuer`, with the extensions of RFC 5280 section 4.2 that its profile calls for.
 * Throws `ERR_SDSD_CERTIFICATE` when the template cannot be encoded.
 */
export function issueCertificate(template: CertificateTemplate, issuer: Issuer): Buffer {
  try {
    return signedDer(toBeSigned(template, issuer), issuer.key, issuer.algorithm);
  } catch (cause) {
    throw new SdsdError('ERR_SDSD_CERTIFICATE', `a certificate cannot be made: ${messageOf(cause)}`, { cause });
  }
}

/** A certificate in DER that its own key signs; errors as for {@link issueCertificate}. */
export function selfSign(template: CertificateTemplate, key: KeyObject): Buffer {
  const keyIdentifier = keyIdentifierOf(template.subjectPublicKeyInfo);
  return issueCertificate(template, issuerWith(encode(nameOf(template.subject)), keyIdentifier, key));
}

/** A serial number of 128 random bits; never zero. `random` gives that many random bytes. */
export function randomSerialNumber(random: (size: number) => Buffer = randomBytes): Buffer {
  const serial = random(16);
  return serial.every((octet) => octet === 0) ? Buffer.from([1]) : serial;
}

function issuerWith(name: Buffer, keyIdentifier: Buffer, key: KeyObject): Issuer {
  try {
    return { name, keyIdentifier, key, algorithm: signatureAlgorithmOf(key) };
  } catch (cause) {
    throw new SdsdError('ERR_SDSD_KEY', `the CA's key cannot be used: ${messageOf(cause)}`, {
      hint: 'give the CA an ECDSA or RSA key',
      cause,
    });
  }
}

function toBeSigned(template: CertificateTemplate, issuer: Issuer): Node {
  return sequence(
    explicit(0, primitive('integer', '\x02')),
    integer(template.serialNumber),
    issuer.algorithm.identifier,
    encoded(issuer.name),
    sequence(time(template.notBefore), time(template.notAfter)),
    nameOf(template.subject),
    encoded(template.subjectPublicKeyInfo),
    explicit(3, sequence(...extensions(template, issuer))),
  );
}

function extensions(template: CertificateTemplate, issuer: Issuer): Node[] {
  const { subject, uriSans } = template;
  const emptySubject = subject.commonName === undefined && subject.organization === undefined;
  return [
    ...profileExtensions(template),
    ...(uriSans.length === 0 ? [] : [subjectAltName(uriSans, emptySubject)]),
    extension(
      Oid.subjectKeyIdentifier,
      primitive('octetString', latin1(keyIdentifierOf(template.subjectPublicKeyInfo))),
    ),
    extension(Oid.authorityKeyIdentifier, sequence(implicit(0, latin1(issuer.keyIdentifier)))),
  ];
}

function profileExtensions({ profile, subjectPublicKeyInfo }: CertificateTemplate): Node[] {
  switch (profile.kind) {
    case 'leaf':
      return [
        criticalExtension(Oid.basicConstraints, sequence()),
        // Only RSA keys encipher keys; RFC 5480 section 3 forbids the bit for EC keys.
        criticalExtension(Oid.keyUsage, isRsa(subjectPublicKeyInfo) ? signatureAndEncipherment : signatureAlone),
        extension(Oid.extendedKeyUsage, serverAndClient),
      ];
    case 'ca': {
      const length = profile.pathLength === undefined ? [] : [integer(Buffer.from([profile.pathLength]))];
      return [
        criticalExtension(Oid.basicConstraints, sequence(boolean(true), ...length)),
        criticalExtension(Oid.keyUsage, certificatesAndCrls),
      ];
    }
  }
}

// BIT STRINGs of RFC 5280 section 4.2.1.3: the number of unused bits, then the bits.
const signatureAlone = primitive('bitString', '\x07\x80');
const signatureAndEncipherment = primitive('bitString', '\x05\xa0');
const certificatesAndCrls = primitive('bitString', '\x01\x06');
const serverAndClient = sequence(oid(Oid.serverAuth), oid(Oid.clientAuth));

const rsaEncryption = Buffer.from('06092a864886f70d010101', 'hex');

function isRsa(spki: Buffer): boolean {
  return spki.subarray(0, 24).includes(rsaEncryption);
}

function extension(id: string, value: Node): Node {
  return sequence(oid(id), octetsOf(value));
}

function criticalExtension(id: string, value: Node): Node {
  return sequence(oid(id), boolean(true), octetsOf(value));
}

function nameOf({ commonName, organization }: CertificateTemplate['subject']): Node {
  const attribute = (id: string, text: string | undefined): Node[] =>
    text === undefined ? [] : [set(sequence(oid(id), primitive('utf8String', utf8(text))))];
  return sequence(...attribute(Oid.organization, organization), ...attribute(Oid.commonName, commonName));
}

function utf8(text: string): string {
  return Buffer.from([...text].slice(0, 64).join('')).toString('latin1');
}

/** RFC 5280 section 4.2.1.2, method 1, with the first 160 bits of SHA-256 (RFC 7093 section 2) in the place of SHA-1. */
function keyIdentifierOf(spki: Buffer): Buffer {
  return createHash('sha256').update(spki).digest().subarray(0, 20);
}

/** RFC 5280 section 4.1.2.5: UTCTime up to the year 2049, GeneralizedTime from then on. */
function time(ms: number): Node {
  if (!(ms >= 0 && ms <= MAX_TIME)) throw new Error('a time lies outside the years 1970 to 9999');
  const digits = new Date(ms)
    .toISOString()
    .replace(/\.\d+Z$/, 'Z')
    .replace(/[-:T]/g, '');
  return digits < '2050' ? primitive('utcTime', digits.slice(2)) : primitive('generalizedTime', digits);
}

const MAX_TIME = Date.UTC(9999, 11, 31, 23, 59, 59, 999);

function latin1(bytes: Buffer): string {
  return bytes.toString('latin1');
}
