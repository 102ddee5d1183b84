/** One name's workload certificate: carries out what `renewal.ts` decides. */
import { createPublicKey, type KeyObject } from 'node:crypto';
import type { Clock, Timer } from '../clock.js';
import { messageOf, SdsdError } from '../errors.js';
import { type Certificate, joinPem, pathValidity, readPrivateKey, type Validity, verifyIssued } from '../pki/index.js';
import { assertCertificatePair } from './deliverable.js';
import type { IdentitySource, IssuedIdentity } from './identity-source.js';
import type { IdentityStore } from './identity-store.js';
import {
  initialRenewal,
  isValidAt,
  type RenewalAction,
  type RenewalChange,
  type RenewalEvent,
  type RenewalOptions,
  type RenewalState,
  renew,
} from './renewal.js';
import type { SecretRef, SecretResult, TlsCertificateSecret } from './secret.js';

export interface WorkloadContext {
  readonly source: IdentitySource;
  /** Undefined: nothing is kept over a restart. */
  readonly store: IdentityStore | undefined;
  readonly onStoreError: (error: unknown) => void;
  readonly clock: Clock;
  /** Uniform in [0, 1). */
  readonly random: () => number;
  readonly renewal: RenewalOptions;
  /** Deadline of one attempt, in milliseconds. */
  readonly attemptTimeoutMs: number;
  readonly nextVersion: () => number;
  /** Runs an attempt for an identity when few enough others are under way. */
  readonly limit: <T>(identity: string, attempt: () => Promise<T>, givenUp: AbortSignal) => Promise<T>;
  /** Takes the roots in before the certificate is published; returns the trust bundle that clients need first, if any. */
  readonly admit: (roots: readonly Certificate[], notAfter: number, since: number) => SecretRef | undefined;
  /** The same for a certificate from before a restart; it may turn out to be under roots that the CA has left. */
  readonly readmit: (roots: readonly Certificate[], notAfter: number) => SecretRef | undefined;
  /** Whether the CA still stands for any of these roots. */
  readonly isCurrent: (roots: readonly Certificate[]) => boolean;
  /** A certificate from before a restart is under a root that the CA has left; its renewal is due soon. */
  readonly onOutdated: (name: string) => void;
  /** How often the CA's roots have changed: what an attempt began with goes to `admit` as `since`. */
  readonly declarations: () => number;
  /** A fault of ours, which must not end the daemon. */
  readonly onFault: (error: unknown) => void;
  /** The result has changed. */
  readonly onResult: (name: string, result: SecretResult) => void;
  readonly onReport: (name: string, change: RenewalChange, state: RenewalState) => void;
}

/** How soon a certificate under a root that the CA has left is renewed: many are, after such a restart. */
const OUTDATED_WITHIN_MS = 30_000;

export class WorkloadSecret {
  readonly name: string;
  readonly identity: string;
  readonly #context: WorkloadContext;
  readonly #abort = new AbortController();
  #state = initialRenewal;
  #candidate: Candidate | undefined;
  /** While what was stored is read, before the first attempt. */
  #starting: Promise<void> | undefined;
  #secret: TlsCertificateSecret | undefined;
  /** The one before, if the current one requires that clients hold something first. */
  #before: TlsCertificateSecret | undefined;
  #saving: Promise<void> = Promise.resolve();
  #timer: Timer | undefined;
  readonly #waiting: (() => void)[] = [];

  constructor(name: string, identity: string, context: WorkloadContext) {
    this.name = name;
    this.identity = identity;
    this.#context = context;
  }

  get state(): RenewalState {
    return this.#state;
  }

  /** The last certificate obtained, valid or not. */
  get secret(): TlsCertificateSecret | undefined {
    return this.#secret;
  }

  /** Takes up what was stored, if that is still good; otherwise asks for a certificate. */
  start(): void {
    const { store, clock } = this.#context;
    if (!store) {
      this.#dispatch({ kind: 'start', now: clock.now() });
      return;
    }
    this.#starting = this.#restore(store)
      .then((event) => {
        this.#starting = undefined;
        if (!this.#abort.signal.aborted) this.#dispatch(event ?? { kind: 'start', now: clock.now() });
      })
      .catch(this.#context.onFault);
  }

  /** Looks at the clock again, for whoever asks: after the host has slept, timers are late. */
  catchUp(): void {
    if (this.#starting) return;
    if (this.result().kind !== 'secret') this.#dispatch({ kind: 'wake', now: this.#context.clock.now() });
  }

  /** Something has changed that makes it worth the while to ask soon: at some moment within so many milliseconds. */
  hurry(withinMs: number): void {
    if (this.#starting) return;
    const { clock, random } = this.#context;
    this.#dispatch({ kind: 'hurry', now: clock.now(), within: withinMs, random: random() });
  }

  /** The clock was set: what the time says now may be different. */
  clockChanged(): void {
    if (this.#starting) return;
    this.#dispatch({ kind: 'wake', now: this.#context.clock.now() });
    // What was planned by the wrong time may be hours away.
    if (this.#state.kind !== 'available' || this.#state.failures > 0) this.hurry(0);
  }

  /** Asks for a new certificate now. Resolves when that attempt is over; rejects with its error. */
  async rotate(): Promise<TlsCertificateSecret> {
    await this.#starting;
    this.#dispatch({ kind: 'rotate', now: this.#context.clock.now() });
    await this.settled();
    this.#abort.signal.throwIfAborted();
    if (this.#secret && this.#state.failures === 0) return this.#secret;
    throw new SdsdError('ERR_SDSD_CA', `no new certificate for ${this.identity}: ${this.#state.lastError}`, {
      hint: 'the current one is kept while it is valid, and renewal goes on; see sdsd status',
    });
  }

  /** Resolves as soon as no attempt is under way. */
  async settled(): Promise<void> {
    await this.#starting;
    if (this.#state.inFlight && !this.#abort.signal.aborted)
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }

  /** What can be served at this moment: never a certificate that is not valid now, even if the timer is late. */
  result(): SecretResult {
    const secret = this.#secret;
    const now = this.#context.clock.now();
    const before = this.#before;
    if (secret && isValid(secret, now)) {
      return { kind: 'secret', secret, ...(before && isValid(before, now) && { before }) };
    }
    return { kind: 'pending', why: this.#why() };
  }

  /** Ends renewal. Resolves when what was obtained is stored. */
  close(): Promise<void> {
    this.#timer?.cancel();
    this.#abort.abort(new SdsdError('ERR_SDSD_CA', 'the name is no longer served'));
    this.#wakeWaiting();
    return this.#saving;
  }

  #why(): string {
    const { kind, lastError } = this.#state;
    const error = lastError === undefined ? '' : `: ${lastError}`;
    if (kind === 'initializing') return `no certificate yet${error}`;
    const isEarly = this.#secret !== undefined && this.#context.clock.now() < this.#secret.notBefore;
    return isEarly
      ? `the certificate is not valid yet: the clock of this host was set back${error}`
      : `the certificate has expired${error}`;
  }

  #dispatch(event: RenewalEvent): void {
    const { state, actions } = renew(this.#state, event, this.#context.renewal);
    this.#state = state;
    for (const action of actions) this.#carryOut(action);
    if (!this.#state.inFlight) this.#wakeWaiting();
  }

  #wakeWaiting(): void {
    for (const resolve of this.#waiting.splice(0)) resolve();
  }

  #carryOut(action: RenewalAction): void {
    const { clock, onResult, onReport } = this.#context;
    switch (action.kind) {
      case 'obtain':
        this.#obtain().catch(this.#context.onFault);
        return;
      case 'wake-at':
        this.#timer?.cancel();
        this.#timer = clock.at(action.time, () => this.#dispatch({ kind: 'wake', now: clock.now() }));
        return;
      case 'publish':
        this.#publish();
        return;
      case 'withdraw':
      case 'restore':
        onResult(this.name, this.result());
        return;
      case 'report':
        onReport(this.name, action.change, this.#state);
        return;
    }
  }

  async #obtain(): Promise<void> {
    const event = await this.#outcome();
    if (!this.#abort.signal.aborted) this.#dispatch(event);
  }

  /** Never rejects: a failed attempt is an event like any other. */
  async #outcome(): Promise<RenewalEvent> {
    const { clock, limit, random, declarations } = this.#context;
    // It may have waited for others; the CA is asked only now.
    let askedAt = clock.now();
    try {
      const attempt = await limit(
        this.identity,
        async () => {
          askedAt = clock.now();
          const since = declarations();
          return { since, ...(await this.#attempt()) };
        },
        this.#abort.signal,
      );
      const { key, since, ...issued } = attempt;
      const now = clock.now();
      const candidate = this.#verified(issued, key, now);
      this.#candidate = { ...candidate, isNew: true, since };
      const { notBefore, notAfter } = candidate.validity;
      return { kind: 'obtained', now, askedAt, notBefore, notAfter, random: random() };
    } catch (error) {
      return { kind: 'failed', now: clock.now(), askedAt, why: messageOf(error), random: random() };
    }
  }

  /** Never rejects: what cannot be restored is asked for anew. */
  async #restore(store: IdentityStore): Promise<RenewalEvent | undefined> {
    const { clock, random } = this.#context;
    const stored = await store.load(this.name, this.identity);
    if (!stored) return undefined;
    const now = clock.now();
    try {
      const candidate = this.#verified(stored.issued, readPrivateKey(stored.issued.keyPem), now);
      this.#candidate = { ...candidate, isNew: false, since: this.#context.declarations() };
      const { notBefore, notAfter } = candidate.validity;
      return { kind: 'restored', now, obtainedAt: stored.obtainedAt, notBefore, notAfter, random: random() };
    } catch (error) {
      this.#context.onStoreError(error);
      return undefined;
    }
  }

  /** Throws if Envoy, or its peers, could not use this now. */
  #verified(issued: Candidate['issued'], key: KeyObject, now: number): Omit<Candidate, 'isNew' | 'since'> {
    const { chain, roots } = issued;
    verifyIssued({ chain, roots, publicKey: createPublicKey(key), identity: this.identity, now });
    const certificateChain = Buffer.from(joinPem(chain.map(({ pem }) => pem)));
    assertCertificatePair(certificateChain, issued.keyPem);
    return { issued, certificateChain, validity: pathValidity({ chain, roots, now }) };
  }

  /** One call to the source, with a deadline that holds even if the source ignores its signal. */
  async #attempt(): Promise<IssuedIdentity> {
    const { clock, source, attemptTimeoutMs } = this.#context;
    const closed = this.#abort.signal;
    closed.throwIfAborted();
    const deadline = new AbortController();
    const late = new SdsdError(
      'ERR_SDSD_TIMEOUT',
      `${source.description} did not answer within ${attemptTimeoutMs} ms`,
    );
    const timer = clock.at(clock.now() + attemptTimeoutMs, () => deadline.abort(late));
    const onClosed = (): void => deadline.abort(closed.reason);
    closed.addEventListener('abort', onClosed, { once: true });
    try {
      return await new Promise((resolve, reject) => {
        deadline.signal.addEventListener('abort', () => reject(deadline.signal.reason), { once: true });
        source.obtain(this.identity, deadline.signal).then(resolve, reject);
      });
    } finally {
      timer.cancel();
      closed.removeEventListener('abort', onClosed);
    }
  }

  #renewOutdated(): void {
    this.#context.onOutdated(this.name);
    // After the step that published it.
    queueMicrotask(() => this.hurry(OUTDATED_WITHIN_MS));
  }

  #publish(): void {
    const candidate = this.#candidate;
    this.#candidate = undefined;
    if (!candidate) return;
    const { issued, certificateChain, isNew, since } = candidate;
    const { notBefore, notAfter, issuersNotAfter } = candidate.validity;
    const { source, store, clock, nextVersion, admit, readmit, onResult, onStoreError } = this.#context;
    const requires = isNew ? admit(issued.roots, notAfter, since) : readmit(issued.roots, notAfter);
    const secret: TlsCertificateSecret = {
      kind: 'tls-certificate',
      name: this.name,
      version: nextVersion(),
      source: source.description,
      identity: this.identity,
      certificateChain,
      privateKey: issued.keyPem,
      serialNumber: issued.chain[0]?.serialNumber ?? '',
      notBefore,
      notAfter,
      issuersNotAfter,
      ...(requires && { requires }),
    };
    this.#before = requires && this.#secret;
    this.#secret = Object.freeze(secret);
    onResult(this.name, this.result());
    if (!isNew && !this.#context.isCurrent(issued.roots)) this.#renewOutdated();
    if (!isNew || !store) return;
    const stored = { identity: this.identity, issued, obtainedAt: clock.now() };
    // One after the other: the last that was obtained is the last that is written.
    this.#saving = this.#saving.then(() => store.save(this.name, stored)).catch(onStoreError);
  }
}

function isValid({ notBefore, notAfter }: TlsCertificateSecret, now: number): boolean {
  return isValidAt({ validFrom: notBefore, until: notAfter }, now);
}

/** A verified certificate that is about to become the current one. */
interface Candidate {
  readonly issued: Omit<IssuedIdentity, 'key'>;
  /** The chain as it is sent. */
  readonly certificateChain: Buffer;
  readonly validity: Validity;
  /** The count of declarations when it was asked for. */
  readonly since: number;
  /** Just obtained, and not from the store. */
  readonly isNew: boolean;
}
