/**
 * The secret manager: which names there are, who holds a lease on them, and the certificates and trust anchors behind them.
 * Names with a lease live in a Map; those without one in an LRU cache, where they go on being renewed until they are pushed
 * out. Nothing here knows how clients are reached.
 */
import { LRUCache } from 'lru-cache';
import { type Clock, sleep, type Timer } from '../clock.js';
import { SdsdError } from '../errors.js';
import { ClientLog, type Logger } from '../log.js';
import type { Certificate } from '../pki/index.js';
import { AttemptQueue } from './attempt-queue.js';
import type { IdentitySource } from './identity-source.js';
import type { IdentityStore } from './identity-store.js';
import type { RenewalChange, RenewalOptions, RenewalState } from './renewal.js';
import { parseResourceName } from './resource-name.js';
import type { Caller, SecretResult, Subscription, TlsCertificateSecret, ValidationContextSecret } from './secret.js';
import type { Anchor } from './trust-bundle.js';
import { TrustBundleSecret } from './trust-bundle-secret.js';
import type { TrustBundleStore } from './trust-bundle-store.js';
import { versionCounter } from './versions.js';
import { type WorkloadContext, WorkloadSecret } from './workload-secret.js';

/** How often the clock is looked at: one that is set back fires no timer. And by how much it must go back to be noticed. */
const LOOK_AT_CLOCK_MS = 10_000;
const STEP_MS = 1_000;

/** How long a start waits for the CA to tell its roots. */
const ROOTS_WITHIN_MS = 500;

/** Within this time all that failed is asked for again when the CA is back. */
const CATCH_UP_MS = 1_000;

/** A CA whose certificate ends so soon is told of. */
const CA_ENDS_SOON_MS = 30 * 86_400_000;
const MAX_UNKNOWN_NAMES = 1_000;
const MAX_SHOWN_NAME = 256;

export interface SecretManagerOptions {
  readonly source: IdentitySource;
  readonly store: TrustBundleStore;
  /** The roots that the CA stands for now, if it can be asked without signing. Default: they come with certificates. */
  readonly roots?: (signal: AbortSignal) => Promise<readonly Certificate[] | undefined>;
  /** Where certificates are kept over a restart. Default: nowhere. */
  readonly identityStore?: IdentityStore;
  /** Which SPIFFE ID stands behind each name. */
  readonly identities: ReadonlyMap<string, string>;
  /** Of those, the names that are kept renewed whatever else is: they are never pushed out. Default: none. */
  readonly pinned?: readonly string[];
  readonly renewal: RenewalOptions;
  /** Lifetime that is asked for, in milliseconds. */
  readonly ttl: number;
  /** Deadline of one attempt to get a certificate, in milliseconds. Default 10 s. */
  readonly attemptTimeoutMs?: number;
  /** How many names without a lease are kept renewed. Default 10,000. */
  readonly maxIdleNames?: number;
  readonly clock: Clock;
  /** Uniform in [0, 1). Default `Math.random`, which is good enough for spreading renewals. */
  readonly random?: () => number;
  readonly log: Logger;
}

type Listener = (result: SecretResult) => void;

interface Entry {
  readonly workload: WorkloadSecret | undefined;
  readonly listeners: Set<Listener>;
}

export interface WorkloadStatus {
  readonly name: string;
  readonly identity: string;
  readonly state: RenewalState;
  readonly secret: TlsCertificateSecret | undefined;
  readonly subscribers: number;
}

export class CachingSecretManager {
  readonly #options: SecretManagerOptions;
  readonly #workloads: WorkloadContext;
  readonly #leased = new Map<string, Entry>();
  readonly #idle: LRUCache<string, Entry>;
  readonly #unknown = new LRUCache<string, { count: number }>({ max: MAX_UNKNOWN_NAMES });
  readonly #clientLog: ClientLog;
  readonly #bundle: TrustBundleSecret;
  readonly #bundleListeners = new Set<Listener>();
  #clockTimer: Timer | undefined;
  /** What the last warning said of the end of the CA. */
  #toldCaEnd: number | undefined;
  readonly #abort = new AbortController();
  #hadOutdated = false;
  #hadRoots = false;
  #closed = false;

  constructor(options: SecretManagerOptions) {
    this.#options = options;
    const { clock, source, log } = options;
    this.#clientLog = new ClientLog(log, clock);
    const versions = versionCounter(clock);
    const nextVersion = versions.next;
    this.#bundle = new TrustBundleSecret({
      clock,
      source: source.description,
      longestTtl: options.ttl,
      store: options.store,
      versions,
      onResult: (_, result) => {
        this.#notify(this.#bundleListeners, result);
        if (result.kind === 'secret' && result.secret.kind === 'validation-context') this.#logRoots(result.secret);
      },
      onStoreError: (error) => log.error('cannot store the trust anchors', { error }),
      onInvalid: (error) => log.error('trust anchors cannot be used; those before are kept', { error }),
    });
    const attempts = new AttemptQueue({ clock, onRecovered: () => this.#catchUp() });
    this.#workloads = {
      source,
      store: options.identityStore,
      onStoreError: (error) => log.warn('a certificate cannot be kept over a restart, or used after one', { error }),
      clock,
      random: options.random ?? Math.random,
      renewal: options.renewal,
      attemptTimeoutMs: options.attemptTimeoutMs ?? 10_000,
      nextVersion,
      limit: (identity, attempt, givenUp) => attempts.run(identity, attempt, givenUp),
      declarations: () => this.#bundle.declarations,
      admit: (roots, notAfter, since) => this.#bundle.admit(roots, notAfter, since),
      readmit: (roots, notAfter) => this.#bundle.readmit(roots, notAfter),
      isCurrent: (roots) => this.#bundle.isCurrent(roots),
      onOutdated: (name) => this.#tellOutdated(name),
      onFault: (error) => log.error('a renewal failed for a reason of our own', { error }),
      onResult: (name, result) => {
        // Without `get`: to be renewed is not to be asked for.
        this.#notify((this.#leased.get(name) ?? this.#idle.peek(name))?.listeners ?? [], result);
        if (result.kind === 'secret' && result.secret.kind === 'tls-certificate') this.#logCertificate(result.secret);
      },
      onReport: (name, change, state) => this.#report(name, change, state),
    };
    this.#idle = new LRUCache({
      max: options.maxIdleNames ?? 10_000,
      dispose: ({ workload }, _name, reason) => {
        if (reason === 'evict') void workload?.close();
      },
    });
  }

  /** Takes up what was stored, and asks for a certificate for every configured name. Does not wait for them. */
  async start(): Promise<void> {
    await this.#bundle.load();
    await this.#declareAtStart();
    this.#watchClock();
    for (const name of this.#options.pinned ?? []) this.#lease(name);
    for (const name of this.#options.identities.keys()) this.#entry(name);
  }

  async generateSecret(resourceName: string, caller: Caller): Promise<SecretResult> {
    const parsed = parseResourceName(resourceName, this.#options.identities);
    if (parsed.kind === 'unknown') return this.#deny(resourceName, parsed.why, caller);
    if (parsed.kind === 'roots') {
      // The roots come with the first certificate; whoever asks before that waits for it.
      if (!this.#bundle.secret) await this.#anyWorkload()?.settled();
      return this.#bundle.result();
    }
    const { workload } = this.#entry(resourceName);
    workload?.catchUp();
    if (workload?.result().kind !== 'secret') await workload?.settled();
    return workload?.result() ?? { kind: 'gone' };
  }

  subscribe(resourceName: string, caller: Caller, onResult: Listener): Subscription {
    const parsed = parseResourceName(resourceName, this.#options.identities);
    if (parsed.kind === 'unknown') {
      onResult(this.#deny(resourceName, parsed.why, caller));
      return { close: () => undefined };
    }
    // Each lease is its own function: one caller may hold two leases with the same one.
    const listener: Listener = (result) => onResult(result);
    if (parsed.kind === 'roots') {
      this.#bundleListeners.add(listener);
      onResult(this.#bundle.result());
      return { close: () => this.#bundleListeners.delete(listener) };
    }
    const entry = this.#lease(resourceName);
    entry.workload?.catchUp();
    entry.listeners.add(listener);
    onResult(entry.workload?.result() ?? { kind: 'gone' });
    return { close: () => this.#release(resourceName, entry, listener) };
  }

  /** The CA now stands for exactly these roots: clients get them before the certificates that need them. */
  declareRoots(roots: readonly Certificate[]): void {
    if (this.#closed) return;
    this.#bundle.declare(roots);
  }

  /** How often the CA's roots have changed: what a request began with goes to {@link admit}. */
  get declarations(): number {
    return this.#bundle.declarations;
  }

  /**
   * A certificate under these roots was granted outside of this manager: clients get them, for as long as it is valid.
   * @param since the count of declarations when it was asked for: a slow answer does not take a root change back.
   */
  admit(roots: readonly Certificate[], notAfter: number, since: number): void {
    this.#bundle.admit(roots, notAfter, since);
  }

  /** Gets a new certificate now for one name, or for all that are kept. Rejects if that fails; current certificates are then kept. */
  async rotate(name?: string): Promise<TlsCertificateSecret[]> {
    if (name !== undefined && !this.#options.identities.has(name)) {
      throw new SdsdError('ERR_SDSD_RESOURCE_NAME', `there is no certificate named ${JSON.stringify(name)} to rotate`, {
        hint: `the names are ${[...this.#options.identities.keys()].slice(0, 20).join(', ')}`,
      });
    }
    if (this.#closed) throw new SdsdError('ERR_SDSD_CONTROL', 'the daemon is closed: nothing is renewed any more');
    // Names that were pushed out of memory get a new certificate anyway when they are asked for.
    const entries = name === undefined ? this.#kept() : [this.#entry(name)];
    return Promise.all(entries.flatMap(({ workload }) => workload?.rotate() ?? []));
  }

  get roots(): readonly Certificate[] {
    return this.#bundle.roots;
  }

  get bundle(): {
    readonly secret: ValidationContextSecret | undefined;
    readonly anchors: readonly Anchor[];
    readonly subscribers: number;
  } {
    const { secret, anchors } = this.#bundle;
    return { secret, anchors, subscribers: this.#bundleListeners.size };
  }

  workloads(): WorkloadStatus[] {
    return this.#kept().flatMap(({ workload, listeners }) =>
      workload
        ? [
            {
              name: workload.name,
              identity: workload.identity,
              state: workload.state,
              secret: workload.secret,
              subscribers: listeners.size,
            },
          ]
        : [],
    );
  }

  /** Names that were asked for and are not served, the latest first, with how often. */
  unknownNames(): { readonly name: string; readonly count: number }[] {
    return [...this.#unknown.entries()].map(([name, { count }]) => ({ name, count }));
  }

  /** Ends all renewal. Resolves when everything is stored. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#clockTimer?.cancel();
    this.#abort.abort();
    const entries = this.#kept();
    this.#leased.clear();
    this.#idle.clear();
    await Promise.all([...entries.map(({ workload }) => workload?.close()), this.#bundle.close()]);
  }

  /** Takes in what the CA stands for now, before anything from an earlier time. One that does not say so soon says it later. */
  async #declareAtStart(): Promise<void> {
    const { clock, roots, log } = this.#options;
    if (!roots) return;
    const told = roots(this.#abort.signal).then(
      (found) => {
        if (found && !this.#closed) this.#bundle.declare(found);
      },
      (error: unknown) => {
        if (!this.#closed) log.warn('the CA does not tell its roots; they come with the first certificate', { error });
      },
    );
    const enough = new AbortController();
    await Promise.race([told, sleep(clock, ROOTS_WITHIN_MS, enough.signal).catch(() => undefined)]);
    enough.abort();
  }

  #tellOutdated(name: string): void {
    if (this.#hadOutdated) return;
    this.#hadOutdated = true;
    const { log, source } = this.#options;
    log.warn('certificates from before the restart are under a root that the CA has left; they are renewed now', {
      resource: name,
      source: source.description,
    });
  }

  /** The CA answers again: whoever has failed meanwhile asks at once, instead of at its own time. */
  #catchUp(): void {
    for (const { workload } of this.#kept()) if (workload && workload.state.failures > 0) workload.hurry(CATCH_UP_MS);
  }

  #watchClock(): void {
    const { clock, log } = this.#options;
    let last = clock.now();
    this.#clockTimer = clock.every(LOOK_AT_CLOCK_MS, () => {
      const now = clock.now();
      const back = last - now;
      last = now;
      if (back < STEP_MS) return;
      log.warn('the clock was set back', { seconds: Math.round(back / 1_000) });
      for (const { workload } of this.#kept()) workload?.clockChanged();
    });
  }

  /** One listener that throws keeps nothing from the others, nor from what comes after them. */
  #notify(listeners: Iterable<Listener>, result: SecretResult): void {
    for (const listener of [...listeners]) {
      try {
        listener(result);
      } catch (error) {
        this.#options.log.error('a listener of a secret failed', { error });
      }
    }
  }

  #kept(): Entry[] {
    return [...this.#leased.values(), ...this.#idle.values()];
  }

  #find(name: string): Entry | undefined {
    return this.#leased.get(name) ?? this.#idle.get(name);
  }

  /** The entry of a configured name; makes it, and asks for its certificate, if it is not kept. */
  #entry(name: string): Entry {
    const existing = this.#find(name);
    if (existing) return existing;
    const identity = this.#options.identities.get(name);
    const workload =
      identity === undefined || this.#closed ? undefined : new WorkloadSecret(name, identity, this.#workloads);
    const entry: Entry = { workload, listeners: new Set() };
    this.#idle.set(name, entry);
    workload?.start();
    return entry;
  }

  #lease(name: string): Entry {
    const entry = this.#entry(name);
    if (!this.#leased.has(name)) {
      this.#idle.delete(name);
      this.#leased.set(name, entry);
    }
    return entry;
  }

  #release(name: string, entry: Entry, listener: Listener): void {
    if (!entry.listeners.delete(listener) || entry.listeners.size > 0 || this.#closed) return;
    if (this.#options.pinned?.includes(name)) return;
    this.#leased.delete(name);
    this.#idle.set(name, entry);
  }

  #anyWorkload(): WorkloadSecret | undefined {
    for (const { workload } of this.#kept()) if (workload) return workload;
    return undefined;
  }

  #deny(asked: string, why: string, caller: Caller): SecretResult {
    // Whoever asks chooses the name: what is kept and logged of it is bounded.
    const name = asked.length > MAX_SHOWN_NAME ? shortened(asked) : asked;
    const known = this.#unknown.get(name);
    this.#unknown.set(name, { count: (known?.count ?? 0) + 1 });
    if (!known) {
      const fields = { resource: name, why, node: caller.nodeId };
      this.#clientLog.warn(caller.connectionId, 'a name was asked for that is not served', fields);
    }
    return { kind: 'denied', reason: 'unknown', why };
  }

  /** The first roots go without saying; a change is news. */
  #logRoots({ name, version, fingerprints }: ValidationContextSecret): void {
    const fields = { resource: name, version, roots: fingerprints.length, sha256: fingerprints.join(',') };
    if (this.#hadRoots) this.#options.log.info('the trust anchors have changed', fields);
    else this.#options.log.debug('trust anchors', fields);
    this.#hadRoots = true;
  }

  #logCertificate({ name, identity, serialNumber, notAfter, version, issuersNotAfter }: TlsCertificateSecret): void {
    const until = new Date(notAfter).toISOString();
    this.#options.log.info('certificate in use', { resource: name, identity, version, serial: serialNumber, until });
    this.#warnOfCaEnd(issuersNotAfter);
  }

  /** Once for each end. */
  #warnOfCaEnd(end: number): void {
    const { clock, log, source } = this.#options;
    const left = end - clock.now();
    if (left > CA_ENDS_SOON_MS || this.#toldCaEnd === end) return;
    this.#toldCaEnd = end;
    log.warn('a certificate of the CA ends soon; renew it, or no certificate outlives it', {
      source: source.description,
      until: new Date(end).toISOString(),
      daysLeft: Math.floor(left / 86_400_000),
    });
  }

  #report(name: string, change: RenewalChange, state: RenewalState): void {
    const { log, source } = this.#options;
    const fields = { resource: name, source: source.description, ...(state.lastError && { why: state.lastError }) };
    switch (change) {
      case 'failing':
        log.warn(
          state.kind === 'available'
            ? 'a certificate cannot be renewed; the current one is kept, and renewal is tried again until it succeeds'
            : 'a certificate cannot be had; it is tried again until it succeeds',
          fields,
        );
        return;
      case 'recovered':
        log.info('certificates are issued again', fields);
        return;
      case 'expired':
        log.error('a certificate has expired and is no longer given to new clients', fields);
        return;
      case 'not-yet-valid':
        log.error(
          'the clock was set back: a certificate is not valid yet and is no longer given to new clients',
          fields,
        );
        return;
    }
  }
}

/** The beginning of a name, in a text of its own: a slice would keep the whole in memory. */
function shortened(name: string): string {
  return `${Buffer.from(name.slice(0, MAX_SHOWN_NAME)).toString()}…`;
}
