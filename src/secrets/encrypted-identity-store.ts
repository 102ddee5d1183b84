/**
 * Certificates and keys on disk, each name in a file of its own, encrypted with AES-256-GCM under a key that the user gives.
 * A file is: a mark, a nonce, the tag, and the ciphertext of a JSON header (its length first) and the key's PEM. Mark and
 * file name are authenticated, so that files cannot be exchanged for one another.
 */
import { createCipheriv, createDecipheriv, createHash, randomBytes } from 'node:crypto';
import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { errnoOf, messageOf, SdsdError } from '../errors.js';
import type { Logger } from '../log.js';
import { parseCertificates } from '../pki/index.js';
import { makeDirectories, writeFileAtomic } from '../storage/index.js';
import type { IdentityStore, StoredIdentity } from './identity-store.js';

const MARK = Buffer.from('sdsd-identity-1\n');
const CIPHER = 'aes-256-gcm';
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
const KEY_BYTES = 32;

export interface EncryptedStoreOptions {
  /** Absolute path; made when it is missing. */
  readonly directory: string;
  /** 32 bytes, from {@link readStateKey}. */
  readonly key: Buffer;
  readonly log: Logger;
}

export function encryptedIdentityStore({ directory, key, log }: EncryptedStoreOptions): IdentityStore {
  return {
    async load(name, identity) {
      const path = join(directory, fileOf(name));
      try {
        const stored = decode(decrypt(await readFile(path), key, fileOf(name)));
        return stored.identity === identity ? stored : undefined;
      } catch (error) {
        if (errnoOf(error) !== 'ENOENT') {
          log.warn('a stored certificate cannot be used; a new one is asked for', { resource: name, path, error });
        }
        return undefined;
      }
    },
    async save(name, stored) {
      const path = join(directory, fileOf(name));
      try {
        makeDirectories(directory, 0o700);
        await writeFileAtomic(path, encrypt(encode(stored), key, fileOf(name)), 0o600);
      } catch (error) {
        throw new SdsdError(
          'ERR_SDSD_STATE',
          `cannot store the certificate of ${name} in ${path}: ${messageOf(error)}`,
          {
            hint: 'make room, or let this user write there; until then a restart needs the CA',
            cause: error,
          },
        );
      }
    },
  };
}

/**
 * The key that encrypts stored certificates: a file with 32 bytes, as they are, in hexadecimal or in base64.
 * Rejects with ERR_SDSD_CONFIG, also if others may write the file.
 * @param onReadable told when others may read it.
 */
export async function readStateKey(path: string, onReadable: () => void = () => undefined): Promise<Buffer> {
  const refuse = (why: string, cause?: unknown): SdsdError =>
    new SdsdError('ERR_SDSD_CONFIG', `cannot use the state key in ${path}: ${why}`, {
      hint: `make one with: (umask 077; openssl rand -hex 32 > ${path}); or, if it is right: chmod 600 ${path}`,
      cause,
    });
  let content: Buffer;
  try {
    const { mode } = await stat(path);
    if (mode & 0o022) throw new Error('others than its owner may write it');
    if (mode & 0o004) onReadable();
    content = await readFile(path);
  } catch (error) {
    throw refuse(messageOf(error), error);
  }
  if (content.length === KEY_BYTES) return content;
  const text = content.toString('latin1').trim();
  if (/^[0-9a-fA-F]{64}$/.test(text)) return Buffer.from(text, 'hex');
  if (/^[A-Za-z0-9+/]{43}=$/.test(text)) return Buffer.from(text, 'base64');
  throw refuse(`it holds ${content.length} bytes, and not 32 bytes, 64 hexadecimal digits or 44 of base64`);
}

function fileOf(name: string): string {
  return createHash('sha256').update(name).digest('hex');
}

function encrypt(plain: Buffer, key: Buffer, file: string): Buffer {
  const nonce = randomBytes(NONCE_BYTES);
  const cipher = createCipheriv(CIPHER, key, nonce).setAAD(associated(file));
  const body = Buffer.concat([cipher.update(plain), cipher.final()]);
  return Buffer.concat([MARK, nonce, cipher.getAuthTag(), body]);
}

function decrypt(sealed: Buffer, key: Buffer, file: string): Buffer {
  const [nonceAt, tagAt, bodyAt] = [MARK.length, MARK.length + NONCE_BYTES, MARK.length + NONCE_BYTES + TAG_BYTES];
  if (!sealed.subarray(0, nonceAt).equals(MARK) || sealed.length < bodyAt)
    throw new Error('it is not a stored certificate');
  const decipher = createDecipheriv(CIPHER, key, sealed.subarray(nonceAt, tagAt), { authTagLength: TAG_BYTES })
    .setAAD(associated(file))
    .setAuthTag(sealed.subarray(tagAt, bodyAt));
  try {
    return Buffer.concat([decipher.update(sealed.subarray(bodyAt)), decipher.final()]);
  } catch (error) {
    throw new Error('it was changed, or encrypted with another key', { cause: error });
  }
}

function associated(file: string): Buffer {
  return Buffer.concat([MARK, Buffer.from(file)]);
}

function encode({ identity, issued, obtainedAt }: StoredIdentity): Buffer {
  const header = Buffer.from(
    JSON.stringify({
      identity,
      obtainedAt,
      chain: issued.chain.map(({ pem }) => pem),
      roots: issued.roots.map(({ pem }) => pem),
    }),
  );
  const length = Buffer.alloc(4);
  length.writeUInt32BE(header.length);
  return Buffer.concat([length, header, issued.keyPem]);
}

function decode(plain: Buffer): StoredIdentity {
  const end = 4 + plain.readUInt32BE(0);
  const header: unknown = JSON.parse(plain.subarray(4, end).toString());
  if (typeof header !== 'object' || header === null) throw new Error('its header is no object');
  const { identity, obtainedAt, chain, roots } = header as Record<string, unknown>;
  if (typeof identity !== 'string' || typeof obtainedAt !== 'number') throw new Error('its header is incomplete');
  return {
    identity,
    obtainedAt,
    issued: { keyPem: plain.subarray(end), chain: certificates(chain), roots: certificates(roots) },
  };
}

function certificates(pems: unknown): StoredIdentity['issued']['chain'] {
  if (!Array.isArray(pems)) throw new Error('its header lacks certificates');
  return pems.flatMap((pem) => parseCertificates(Buffer.from(String(pem))));
}
