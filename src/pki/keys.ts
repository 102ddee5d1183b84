import { createPrivateKey, generateKeyPair, generateKeyPairSync, type KeyObject } from 'node:crypto';
import { promisify } from 'node:util';
import { SdsdError } from '../errors.js';
import { type PemBlock, pemBlocks, toPem } from './pem.js';

export type KeyAlgorithm =
  | { readonly kind: 'ecdsa'; readonly curve: 'P-256' | 'P-384' }
  | { readonly kind: 'rsa'; readonly bits: 2048 | 3072 | 4096 };

/** How a private key is written: PKCS#8, or the older form of its kind (SEC1 for EC, PKCS#1 for RSA). */
export type KeyFormat = 'pkcs8' | 'traditional';

/** A new private key. RSA keys take long and come from the thread pool; EC keys are cheaper made at once. */
export async function generatePrivateKey(algorithm: KeyAlgorithm): Promise<KeyObject> {
  switch (algorithm.kind) {
    case 'ecdsa':
      return generateKeyPairSync('ec', { namedCurve: algorithm.curve }).privateKey;
    case 'rsa':
      return (await generateKeyPairInPool('rsa', { modulusLength: algorithm.bits })).privateKey;
  }
}

const generateKeyPairInPool = promisify(generateKeyPair);

/**
 * The private key as one PEM block. 'pkcs8' is RFC 5958; 'traditional' is SEC1 (RFC 5915) for EC keys and PKCS#1
 * (RFC 8017 appendix A.1.2) for RSA keys.
 */
export function encodePrivateKey(key: KeyObject, format: KeyFormat): Buffer {
  const type = format === 'pkcs8' ? 'pkcs8' : key.asymmetricKeyType === 'rsa' ? 'pkcs1' : 'sec1';
  return Buffer.from(toPem(labels[type], key.export({ type, format: 'der' })));
}

const labels = { pkcs8: 'PRIVATE KEY', sec1: 'EC PRIVATE KEY', pkcs1: 'RSA PRIVATE KEY' } as const;

/**
 * The one private key of PEM data, in PKCS#8, SEC1 (with or without an EC PARAMETERS block before it) or PKCS#1; blocks
 * that hold no private key, certificates for one, are ignored. Throws `ERR_SDSD_PEM` for broken PEM, and `ERR_SDSD_KEY`
 * when there is no key or more than one, when it is encrypted, damaged, or of a kind that {@link unusableKey} names.
 */
export function readPrivateKey(pem: Buffer): KeyObject {
  const [block, another] = pemBlocks(pem).filter(({ label }) => label.endsWith('PRIVATE KEY'));
  if (block === undefined) {
    throw unreadable('no private key is among its PEM blocks', 'give a file with a PRIVATE KEY block');
  }
  if (another !== undefined) {
    throw unreadable('it holds more than one private key', 'leave only the key that belongs to the certificate');
  }
  return privateKeyOf(block);
}

/** The private key of one PEM block; errors as for {@link readPrivateKey}. */
export function privateKeyOf(block: PemBlock): KeyObject {
  if (isEncrypted(block)) {
    throw unreadable(
      'it is encrypted with a password, and sdsd never asks for one',
      'decrypt it first: openssl pkey -in encrypted.pem -out key.pem',
    );
  }
  const key = decodeKey(block);
  const fault = unusableKey(key);
  if (fault !== undefined) throw unreadable(fault, 'use ECDSA P-256, ECDSA P-384 or RSA with at least 2048 bits');
  return key;
}

/**
 * Why a public or private key cannot be used, or undefined when it can: Envoy takes RSA from 2048 bits on and ECDSA on
 * P-256, P-384 and P-521.
 */
export function unusableKey(key: KeyObject): string | undefined {
  switch (key.asymmetricKeyType) {
    case 'rsa': {
      const bits = key.asymmetricKeyDetails?.modulusLength ?? 0;
      return bits < 2048 ? `it is an RSA key of ${bits} bits, and fewer than 2048 are not safe` : undefined;
    }
    case 'ec': {
      const curve = key.asymmetricKeyDetails?.namedCurve;
      if (curve !== undefined && usableCurves.has(curve)) return undefined;
      return `it is an EC key on ${curve ?? 'a curve without a name'}, which Envoy does not take`;
    }
    case 'ed25519':
      return 'it is an Ed25519 key, with which no Envoy completes mutual TLS';
    default:
      return `it is a key of the kind ${key.asymmetricKeyType ?? 'secret'}, which Envoy does not take`;
  }
}

const usableCurves: ReadonlySet<string> = new Set(['prime256v1', 'secp384r1', 'secp521r1']);

function isEncrypted({ label, headers }: PemBlock): boolean {
  if (label === 'ENCRYPTED PRIVATE KEY') return true;
  return Object.entries(headers ?? {}).some(
    ([name, value]) => /^(proc-type|dek-info)$/i.test(name) && (/^dek/i.test(name) || /ENCRYPTED/i.test(value)),
  );
}

function decodeKey({ label, der }: PemBlock): KeyObject {
  const form = forms.get(label);
  if (form === undefined) {
    throw unreadable(`it is a ${label}`, 'convert it to PKCS#8: openssl pkey -in key.pem -out pkcs8.pem');
  }
  const damaged = (cause?: unknown): SdsdError =>
    unreadable(
      `its ${label} block is damaged, or holds a key of another form`,
      'write the file again from its source',
      cause,
    );
  // From Node 22 on OpenSSL guesses the form when the label is wrong, but Envoy does not.
  if (tagAfterVersion(der) !== form.tag) throw damaged();
  try {
    return createPrivateKey({ key: der, format: 'der', type: form.type });
  } catch (cause) {
    throw damaged(cause);
  }
}

/** The forms by their labels; `tag` is the DER tag of what follows the version: an algorithm, a modulus, a secret. */
const forms: ReadonlyMap<string, { readonly type: 'pkcs8' | 'pkcs1' | 'sec1'; readonly tag: number }> = new Map([
  [labels.pkcs8, { type: 'pkcs8', tag: 0x30 }],
  [labels.pkcs1, { type: 'pkcs1', tag: 0x02 }],
  [labels.sec1, { type: 'sec1', tag: 0x04 }],
]);

function tagAfterVersion(der: Buffer): number | undefined {
  const length = der[1] ?? 0;
  const header = length < 0x80 ? 2 : 2 + (length & 0x7f);
  return der[header + 3];
}

function unreadable(fault: string, hint: string, cause?: unknown): SdsdError {
  return new SdsdError('ERR_SDSD_KEY', `the private key cannot be used: ${fault}`, { hint, cause });
}
