import { type KeyObject, sign, verify } from 'node:crypto';
import { bitString, encode, type Node, oid, primitive, sequence } from './asn1.js';
import { Oid } from './oids.js';

/** How a key signs certificates and requests: RFC 5758 section 3.2 for ECDSA, RFC 8017 appendix A.2.4 for RSA. */
export interface SignatureAlgorithm {
  readonly identifier: Node;
  readonly hash: 'sha256' | 'sha384' | 'sha512';
}

/** The algorithm with which a private key signs; throws a plain error for a kind of key that sdsd does not sign with. */
export function signatureAlgorithmOf(key: KeyObject): SignatureAlgorithm {
  if (key.asymmetricKeyType === 'rsa') return rsaWithSha256;
  const curve = key.asymmetricKeyType === 'ec' ? key.asymmetricKeyDetails?.namedCurve : undefined;
  switch (curve) {
    case 'prime256v1':
      return ecdsaWithSha256;
    case 'secp384r1':
      return ecdsaWithSha384;
    case 'secp521r1':
      return ecdsaWithSha512;
    default:
      throw new Error(`sdsd does not sign with keys of the kind ${curve ?? key.asymmetricKeyType ?? 'secret'}`);
  }
}

/** `SEQUENCE { toBeSigned, algorithm, signature }`, the form that certificates and requests share. */
export function signedDer(toBeSigned: Node, key: KeyObject, algorithm = signatureAlgorithmOf(key)): Buffer {
  const signature = sign(algorithm.hash, encode(toBeSigned), key);
  return encode(sequence(toBeSigned, algorithm.identifier, bitString(signature)));
}

/** Whether a signature made with the algorithm of that OID is right. False for algorithms that are not accepted. */
export function isSignedBy(key: KeyObject, algorithm: string, toBeSigned: Buffer, signature: Buffer): boolean {
  const accepted = requestAlgorithms.get(algorithm);
  if (accepted === undefined || accepted.kind !== key.asymmetricKeyType) return false;
  return verify(accepted.hash, toBeSigned, key, signature);
}

/** Whether certificates that are signed in this way are safe: SHA-2 and Ed25519 are, SHA-1 and MD5 are not. */
export function isSafeSignatureAlgorithm(algorithm: string): boolean {
  return requestAlgorithms.has(algorithm) || algorithm === Oid.rsaPss || algorithm === Oid.ed25519;
}

const requestAlgorithms: ReadonlyMap<string, { readonly kind: string; readonly hash: string }> = new Map([
  [Oid.ecdsaWithSha256, { kind: 'ec', hash: 'sha256' }],
  [Oid.ecdsaWithSha384, { kind: 'ec', hash: 'sha384' }],
  [Oid.ecdsaWithSha512, { kind: 'ec', hash: 'sha512' }],
  [Oid.rsaWithSha256, { kind: 'rsa', hash: 'sha256' }],
  [Oid.rsaWithSha384, { kind: 'rsa', hash: 'sha384' }],
  [Oid.rsaWithSha512, { kind: 'rsa', hash: 'sha512' }],
]);

const rsaWithSha256: SignatureAlgorithm = {
  identifier: sequence(oid(Oid.rsaWithSha256), primitive('null', '')),
  hash: 'sha256',
};
const ecdsaWithSha256: SignatureAlgorithm = { identifier: sequence(oid(Oid.ecdsaWithSha256)), hash: 'sha256' };
const ecdsaWithSha384: SignatureAlgorithm = { identifier: sequence(oid(Oid.ecdsaWithSha384)), hash: 'sha384' };
const ecdsaWithSha512: SignatureAlgorithm = { identifier: sequence(oid(Oid.ecdsaWithSha512)), hash: 'sha512' };
