import { chmod, type FileHandle, link, open, rename, rm, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { errnoOf, messageOf, SdsdError } from '../errors.js';
import {
  encodePrivateKey,
  joinPem,
  type PemBlock,
  parseCertificate,
  pemBlocks,
  privateKeyOf,
  verifyPath,
} from '../pki/index.js';
import { makeDirectories, ownershipFault, syncDirectory, writeTemporary } from '../storage/index.js';
import type { KeyedCertificate } from './authority.js';

/** What the local CA keeps between runs. */
export interface StoredCa {
  readonly root: KeyedCertificate;
  readonly intermediate?: KeyedCertificate;
}

/**
 * The one file in which the local CA keeps its keys and certificates, so that they change all together or not at all:
 * `ca.pem`, mode 0600, in a directory of mode 0700. Its blocks are the root's key and certificate, then perhaps the
 * intermediate's.
 */
export class LocalCaStore {
  readonly #directory: string;
  readonly file: string;

  /** @param directory an absolute path; made when it is missing. */
  constructor(directory: string) {
    this.#directory = directory;
    this.file = join(directory, 'ca.pem');
  }

  /**
   * What is stored, or undefined when the file does not exist. Throws `ERR_SDSD_CA_FILES` for a file that others can
   * read, that belongs to another user, that is a link to nothing, that is broken, or whose parts do not belong together: it
   * is never replaced unasked, because every workload trusts the root in it.
   */
  async load(): Promise<StoredCa | undefined> {
    const content = await this.#read();
    return content === undefined ? undefined : this.#parse(content);
  }

  /** Stores a first CA, and returns what is stored now: another one if somebody else was faster. */
  async create(first: StoredCa): Promise<StoredCa> {
    await this.#makeDirectory();
    const temporary = await this.#writeTemporary(first);
    try {
      await link(temporary, this.file);
      await syncDirectory(this.#directory);
      return first;
    } catch (error) {
      if (errnoOf(error) !== 'EEXIST') throw this.#unwritable(error);
    } finally {
      await rm(temporary, { force: true });
    }
    return (await this.load()) ?? first;
  }

  /** Puts another CA into the place of the stored one, atomically. Throws `ERR_SDSD_CA_FILES`; then the old one stays. */
  async replace(next: StoredCa): Promise<void> {
    // Somebody may have deleted it under the daemon.
    await this.#makeDirectory();
    const temporary = await this.#writeTemporary(next);
    try {
      await rename(temporary, this.file);
      await syncDirectory(this.#directory);
    } catch (error) {
      await rm(temporary, { force: true });
      throw this.#unwritable(error);
    }
  }

  async #read(): Promise<Buffer | undefined> {
    let handle: FileHandle | undefined;
    try {
      // What is above the CA's own directory is for whoever chose it to judge.
      const fault = ownershipFault({ path: this.file, trusted: dirname(this.#directory) });
      if (fault) throw this.#broken(fault.what, fault.cure);
      handle = await open(this.file, 'r');
      const found = await handle.stat();
      if (!found.isFile()) throw this.#broken('it is not a file', 'restore it from a backup');
      if ((found.mode & 0o077) !== 0) {
        throw this.#broken('others than its owner may read or write it', `run: chmod 600 ${this.file}`);
      }
      return await handle.readFile();
    } catch (error) {
      if (errnoOf(error) === 'ENOENT') return undefined;
      if (error instanceof SdsdError) throw error;
      throw this.#broken(messageOf(error), 'let the user that sdsd runs as read it', error);
    } finally {
      await handle?.close();
    }
  }

  #parse(content: Buffer): StoredCa {
    try {
      const [root, intermediate, ...more] = pairsOf(pemBlocks(content));
      if (root === undefined || more.length > 0) throw new Error('it holds no root, or too much');
      if (!root.certificate.selfSigned || !root.certificate.isCa) throw new Error('its first certificate is no root');
      if (intermediate === undefined) return { root };
      const { certificate } = intermediate;
      verifyPath({ chain: [certificate], roots: [root.certificate], now: certificate.notBefore });
      return { root, intermediate };
    } catch (cause) {
      const hint = 'put it back from a backup; or remove it: sdsd then makes a new root, which every peer has to learn';
      throw this.#broken(messageOf(cause), hint, cause);
    }
  }

  async #makeDirectory(): Promise<void> {
    try {
      makeDirectories(this.#directory, 0o700);
      const { mode } = await stat(this.#directory);
      if ((mode & 0o077) !== 0) await chmod(this.#directory, 0o700);
    } catch (error) {
      throw this.#unwritable(error);
    }
  }

  /** The path of a new file in the same directory, whole and on the disk. */
  async #writeTemporary({ root, intermediate }: StoredCa): Promise<string> {
    const pairs = intermediate === undefined ? [root] : [root, intermediate];
    const parts = pairs.flatMap(({ key, certificate }) => [
      encodePrivateKey(key, 'pkcs8'),
      Buffer.from(certificate.pem),
    ]);
    try {
      return await writeTemporary(this.file, joinPem(parts), 0o600);
    } catch (error) {
      throw this.#unwritable(error);
    }
  }

  #broken(fault: string, hint: string, cause?: unknown): SdsdError {
    return new SdsdError('ERR_SDSD_CA_FILES', `the local CA in ${this.file} cannot be used: ${fault}`, { hint, cause });
  }

  #unwritable(cause: unknown): SdsdError {
    return new SdsdError('ERR_SDSD_CA_FILES', `the local CA cannot be stored in ${this.file}: ${messageOf(cause)}`, {
      hint: 'give sdsd a state directory on a disk with space that it may write to',
      cause,
    });
  }
}

/** Keys and certificates in turn, each key before its certificate. */
function pairsOf(blocks: readonly PemBlock[]): KeyedCertificate[] {
  const pairs: KeyedCertificate[] = [];
  for (let index = 0; index < blocks.length; index += 2) {
    const [first, second] = blocks.slice(index, index + 2);
    if (first === undefined || second?.label !== 'CERTIFICATE') throw new Error('a certificate is missing from it');
    const key = privateKeyOf(first);
    const certificate = parseCertificate(second.der);
    if (!certificate.x509.checkPrivateKey(key)) throw new Error('a key in it does not belong to its certificate');
    pairs.push({ key, certificate });
  }
  return pairs;
}
