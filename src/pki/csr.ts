import { createPublicKey, type KeyObject } from 'node:crypto';
import { messageOf, SdsdError } from '../errors.js';
import {
  bytesOf,
  childrenOf,
  decode,
  encode,
  encoded,
  explicit,
  insideOctets,
  isTagged,
  type Node,
  octetsOfBitString,
  oid,
  oidOf,
  primitive,
  sequence,
  set,
} from './asn1.js';
import { unusableKey } from './keys.js';
import { Oid } from './oids.js';
import { isSignedBy, signedDer } from './signature.js';
import { generalNames, subjectAltName, urisOf } from './subject-alt-name.js';
import { subjectPublicKeyInfo } from './subject-public-key-info.js';

/**
 * A certificate signing request, PKCS#10 (RFC 2986) in DER. Its subject is empty, so the SAN extension that holds the
 * URIs is critical (RFC 5280 section 4.2.1.6). Throws `ERR_SDSD_CSR` for a URI outside ASCII or a key that cannot sign.
 */
export function createCsr({ key, uriSans }: { key: KeyObject; uriSans: readonly string[] }): Buffer {
  try {
    const attributes = uriSans.length === 0 ? [] : [extensionRequest(uriSans)];
    const info = sequence(VERSION_1, sequence(), encoded(subjectPublicKeyInfo(key)), explicit(0, ...attributes));
    return signedDer(info, key);
  } catch (cause) {
    throw new SdsdError('ERR_SDSD_CSR', `a certificate signing request cannot be made: ${messageOf(cause)}`, { cause });
  }
}

/** What a certificate signing request asks for. */
export interface CertificateRequest {
  readonly publicKey: KeyObject;
  /** DER. */
  readonly subjectPublicKeyInfo: Buffer;
  /** In the order of the request; names of other kinds are not among them. */
  readonly uriSans: string[];
}

/**
 * Reads a PKCS#10 request in DER and verifies its signature. Throws `ERR_SDSD_CSR` when it is malformed, not DER, signed
 * wrongly or with SHA-1, or made for a key that Envoy does not take.
 */
export function parseCsr(der: Buffer): CertificateRequest {
  try {
    return readRequest(der);
  } catch (cause) {
    throw new SdsdError('ERR_SDSD_CSR', `the certificate signing request cannot be used: ${messageOf(cause)}`, {
      hint: 'make a new PKCS#10 request, in DER, with an ECDSA or RSA key of its own and SHA-256',
      cause,
    });
  }
}

const VERSION_1 = primitive('integer', '\0');

function extensionRequest(uriSans: readonly string[]): Node {
  return sequence(oid(Oid.extensionRequest), set(sequence(subjectAltName(uriSans, true))));
}

function readRequest(der: Buffer): CertificateRequest {
  const [info, algorithm, signature, ...rest] = childrenOf(decode(der), 'sequence');
  if (info === undefined || rest.length > 0) throw new Error('it is not a PKCS#10 request');
  const [version, subject, spki, attributes, ...more] = childrenOf(info, 'sequence');
  childrenOf(subject, 'sequence');
  if (bytesOf(version, 'integer') !== '\0' || spki === undefined || more.length > 0) {
    throw new Error('it is not a PKCS#10 request of version 1');
  }
  const spkiDer = encode(spki);
  const publicKey = createPublicKey({ key: spkiDer, format: 'der', type: 'spki' });
  const fault = unusableKey(publicKey);
  if (fault !== undefined) throw new Error(fault);
  const signedWith = oidOf(childrenOf(algorithm, 'sequence')[0]);
  if (!isSignedBy(publicKey, signedWith, encode(info), octetsOfBitString(signature))) {
    throw new Error('its signature is wrong, or made with an algorithm that is not accepted');
  }
  return { publicKey, subjectPublicKeyInfo: spkiDer, uriSans: requestedUris(attributes) };
}

function requestedUris(attributes: Node | undefined): string[] {
  if (attributes === undefined) return [];
  if (!isTagged(attributes, 0)) throw new Error('its attributes are malformed');
  const requests = childrenOf(attributes).filter((node) => oidOf(childrenOf(node)[0]) === Oid.extensionRequest);
  if (requests.length > 1) throw new Error('it asks for extensions twice');
  const extensions = requests
    .flatMap((node) => childrenOf(childrenOf(node)[1], 'set'))
    .flatMap((node) => childrenOf(node));
  const sans = extensions.filter((node) => oidOf(childrenOf(node, 'sequence')[0]) === Oid.subjectAltName);
  if (sans.length > 1) throw new Error('it holds two SAN extensions');
  return sans.flatMap((node) => urisOf(generalNames(insideOctets(childrenOf(node).at(-1)))));
}
