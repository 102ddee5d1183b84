import { createPublicKey, type KeyObject } from 'node:crypto';
import { bitString, encode, oid, sequence } from './asn1.js';
import { Oid } from './oids.js';

/**
 * The public half of a key as SubjectPublicKeyInfo, DER (RFC 5280 section 4.1.2.7). For P-256 and P-384 it is put
 * together from the key's JWK (RFC 5480 section 2), because OpenSSL's own export takes twenty times as long.
 */
export function subjectPublicKeyInfo(key: KeyObject): Buffer {
  const prefix = prefixes.get(key.asymmetricKeyDetails?.namedCurve ?? '');
  if (prefix === undefined) {
    const publicKey = key.type === 'private' ? createPublicKey(key) : key;
    return publicKey.export({ type: 'spki', format: 'der' });
  }
  const { x = '', y = '' } = key.export({ format: 'jwk' });
  return Buffer.concat([prefix, Buffer.from(x, 'base64url'), Buffer.from(y, 'base64url')]);
}

const prefixes: ReadonlyMap<string, Buffer> = new Map([
  ['prime256v1', ecPrefix(Oid.p256, 32)],
  ['secp384r1', ecPrefix(Oid.p384, 48)],
]);

/** All of an EC SubjectPublicKeyInfo up to the coordinates, which JWK pads to `size` octets each. */
function ecPrefix(curve: string, size: number): Buffer {
  const uncompressed = Buffer.concat([Buffer.from([4]), Buffer.alloc(2 * size)]);
  const whole = encode(sequence(sequence(oid(Oid.ecPublicKey), oid(curve)), bitString(uncompressed)));
  return whole.subarray(0, whole.length - 2 * size);
}
