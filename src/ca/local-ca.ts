import { createPublicKey, randomBytes } from 'node:crypto';
import type { Clock } from '../clock.js';
import { messageOf, SdsdError } from '../errors.js';
import {
  type Certificate,
  createCsr,
  generatePrivateKey,
  type KeyAlgorithm,
  parseSpiffeId,
  parseTrustDomain,
  verifyIssued,
} from '../pki/index.js';
import type { CaClient, SignedChain, SigningRequest } from '../secrets/ca-client.js';
import { type Authority, authorityOf, createIntermediate, createRoot, type KeyedCertificate } from './authority.js';
import { type CaFiles, readCaFiles, strictFaults } from './ca-files.js';
import { issueLeaf } from './issue-leaf.js';
import { LocalCaStore, type StoredCa } from './local-ca-store.js';

export interface LocalCaOptions {
  /** Absolute path of the directory that holds `ca.pem`; made when it is missing. */
  readonly directory: string;
  readonly trustDomain: string;
  readonly clock: Clock;
  /** Gives that many random bytes, for serial numbers. Default: node:crypto. */
  readonly random?: (size: number) => Buffer;
  /** Of the CA's own keys. Default: ECDSA P-256. */
  readonly algorithm?: KeyAlgorithm;
  /** Milliseconds. Default: 10 years. */
  readonly rootLifetime?: number;
  /** How far before now certificates begin to be valid, in milliseconds. Default: 60,000. */
  readonly backdate?: number;
  /** Whether an intermediate of one year signs in the place of the root. Default: false. */
  readonly intermediate?: boolean;
  /** Told when a new intermediate cannot be stored; the present one signs on while it is valid. Default: nobody is told. */
  readonly onStoreError?: (error: unknown) => void;
  /** What it will have to sign: a CA from files that can never sign one of these is refused. Default: nothing. */
  readonly identities?: readonly string[];
  /** Told what others may refuse in the certificates of a CA from files. Default: nobody is told. */
  readonly onWarning?: (message: string) => void;
  /** Sign with this CA; then `directory` is not touched. */
  readonly files?: CaFiles;
  /** The longest lifetime that is granted, in milliseconds. Default: what the CA certificate has left. */
  readonly maxTtl?: number;
}

/** A CA inside the daemon. */
export interface LocalCa extends CaClient {
  /**
   * Makes a new root and signs with it from now on; peers have to have learnt it before they meet such leaves, which is
   * the caller's affair. Rejects with `ERR_SDSD_CA` when the CA comes from files, and with `ERR_SDSD_CA_FILES` when the
   * root cannot be stored; the old one then stays.
   */
  rotateRoot(): Promise<void>;
}

/**
 * Opens the local CA; the first time, makes it. Rejects with `ERR_SDSD_SPIFFE_ID` for a bad trust domain and with
 * `ERR_SDSD_CA_FILES` when what is stored, or the given files, cannot be used. A stored root that has expired can be
 * opened, so that it can be rotated, but does not sign.
 */
export async function openLocalCa(options: LocalCaOptions): Promise<LocalCa> {
  const settings = settingsOf(options);
  if (options.files !== undefined) {
    const authority = await readCaFiles(options.files, settings.clock.now());
    await tryToSign(authority, options.files, settings);
    for (const fault of new Set(
      strictFaults([authority.certificate, ...authority.intermediates, ...authority.roots]),
    )) {
      settings.onWarning(`${fault}: OpenSSL refuses it in its strict mode, and so may others`);
    }
    return new FileCa(`local CA (${options.files.certificate})`, authority, settings);
  }
  const store = new LocalCaStore(options.directory);
  const stored = (await store.load()) ?? (await store.create({ root: await createRoot(newRoot(settings)) }));
  const ca = new StoredLocalCa(store, stored, settings);
  await ca.prepare();
  return ca;
}

const DAY = 86_400_000;

type Settings = Required<Omit<LocalCaOptions, 'directory' | 'files' | 'maxTtl'>> & Pick<LocalCaOptions, 'maxTtl'>;

function settingsOf(options: LocalCaOptions): Settings {
  return {
    random: randomBytes,
    algorithm: { kind: 'ecdsa', curve: 'P-256' },
    rootLifetime: 3650 * DAY,
    backdate: 60_000,
    intermediate: false,
    identities: [],
    onStoreError: () => undefined,
    onWarning: () => undefined,
    ...options,
    trustDomain: parseTrustDomain(options.trustDomain),
  };
}

function newRoot(settings: Settings): Parameters<typeof createRoot>[0] {
  return { ...settings, now: settings.clock.now(), lifetime: settings.rootLifetime };
}

function sign(authority: Authority, request: SigningRequest, settings: Settings): SignedChain {
  const { clock, backdate, maxTtl, random } = settings;
  return issueLeaf(authority, request, { now: clock.now(), backdate, maxTtl, random });
}

/**
 * Signs as it will have to, for one identity of each trust domain, and verifies the result: name constraints or the extended key
 * usage of a CA may forbid all of it. Throws `ERR_SDSD_CA_FILES`.
 */
async function tryToSign(authority: Authority, files: CaFiles, settings: Settings): Promise<void> {
  const key = await generatePrivateKey({ kind: 'ecdsa', curve: 'P-256' });
  const byTrustDomain = new Map(settings.identities.map((identity) => [parseSpiffeId(identity).trustDomain, identity]));
  const now = settings.clock.now();
  for (const identity of byTrustDomain.values()) {
    try {
      const sans = [identity];
      const signed = sign(authority, { csr: createCsr({ key, uriSans: sans }), sans, ttl: 60_000 }, settings);
      verifyIssued({ ...signed, publicKey: createPublicKey(key), identity, now });
    } catch (cause) {
      throw new SdsdError(
        'ERR_SDSD_CA_FILES',
        `the CA in ${files.certificate} cannot sign for ${identity}: ${messageOf(cause)}`,
        { hint: 'use a CA that may sign it, or another trust domain', cause },
      );
    }
  }
}

/** Signs with a CA that the user owns and renews. */
class FileCa implements LocalCa {
  readonly description: string;
  readonly #authority: Authority;
  readonly #settings: Settings;

  constructor(description: string, authority: Authority, settings: Settings) {
    this.description = description;
    this.#authority = authority;
    this.#settings = settings;
  }

  async sign(request: SigningRequest, signal: AbortSignal): Promise<SignedChain> {
    signal.throwIfAborted();
    return sign(this.#authority, request, this.#settings);
  }

  async roots(signal: AbortSignal): Promise<readonly Certificate[]> {
    signal.throwIfAborted();
    return this.#authority.roots;
  }

  async rotateRoot(): Promise<void> {
    throw new SdsdError('ERR_SDSD_CA', 'the root cannot be rotated: the CA comes from files that sdsd does not own', {
      hint: 'write a new CA to these files, and start sdsd again',
    });
  }

  close(): void {}
}

/**
 * Signs with what the store holds. Memory follows the disk: what is not stored is never signed with, so that no leaf
 * outlives its CA in a crash. Changes wait for one another.
 */
class StoredLocalCa implements LocalCa {
  readonly description = 'local CA';
  readonly #store: LocalCaStore;
  readonly #settings: Settings;
  #stored: StoredCa;
  #authority: Authority;
  #change: Promise<void> = Promise.resolve();

  constructor(store: LocalCaStore, stored: StoredCa, settings: Settings) {
    this.#store = store;
    this.#settings = settings;
    this.#stored = stored;
    this.#authority = this.#authorityOf(stored);
  }

  /** Sees to it that an intermediate is there and has enough life left. */
  async prepare(): Promise<void> {
    if (this.#needsIntermediate()) await this.#inTurn(() => this.#renewIntermediate());
  }

  async sign(request: SigningRequest, signal: AbortSignal): Promise<SignedChain> {
    signal.throwIfAborted();
    if (this.#needsIntermediate()) {
      try {
        await this.prepare();
      } catch (error) {
        // While the present intermediate is valid, a full disk is no reason to stop; the next request tries again.
        if (this.#settings.clock.now() >= this.#authority.notAfter) throw error;
        this.#settings.onStoreError(error);
      }
      signal.throwIfAborted();
    }
    return sign(this.#authority, request, this.#settings);
  }

  async roots(signal: AbortSignal): Promise<readonly Certificate[]> {
    signal.throwIfAborted();
    return this.#authority.roots;
  }

  rotateRoot(): Promise<void> {
    return this.#inTurn(async () => {
      const root = await createRoot(newRoot(this.#settings));
      await this.#replace(
        this.#settings.intermediate ? { root, intermediate: await this.#newIntermediate(root) } : { root },
      );
    });
  }

  close(): void {}

  #needsIntermediate(): boolean {
    if (!this.#settings.intermediate) return false;
    const { root, intermediate } = this.#stored;
    const now = this.#settings.clock.now();
    if (now >= root.certificate.notAfter) return false;
    if (intermediate === undefined) return true;
    const { notBefore, notAfter } = intermediate.certificate;
    // Near the root's own end a new intermediate would not live any longer.
    return notAfter - now < (notAfter - notBefore) / 3 && notAfter < root.certificate.notAfter;
  }

  async #renewIntermediate(): Promise<void> {
    if (!this.#needsIntermediate()) return;
    const { root } = this.#stored;
    await this.#replace({ root, intermediate: await this.#newIntermediate(root) });
  }

  #newIntermediate(root: KeyedCertificate): Promise<KeyedCertificate> {
    return createIntermediate({ ...this.#settings, now: this.#settings.clock.now(), lifetime: 365 * DAY }, root);
  }

  async #replace(next: StoredCa): Promise<void> {
    await this.#store.replace(next);
    this.#stored = next;
    this.#authority = this.#authorityOf(next);
  }

  #authorityOf({ root, intermediate }: StoredCa): Authority {
    const roots = [root.certificate];
    if (!this.#settings.intermediate || intermediate === undefined) return authorityOf(root, [], roots);
    return authorityOf(intermediate, [intermediate.certificate], roots);
  }

  /** Runs `work` after all that came before it, whether that succeeded or not. */
  #inTurn(work: () => Promise<void>): Promise<void> {
    const turn = this.#change.then(work);
    this.#change = turn.catch(() => undefined);
    return turn;
  }
}
