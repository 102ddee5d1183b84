/** The resource ROOTCA: carries out what `trust-bundle.ts` decides, and stores it. */
import type { Clock, Timer } from '../clock.js';
import { type Certificate, joinPem } from '../pki/index.js';
import { assertTrustAnchors } from './deliverable.js';
import { ROOTS_NAME } from './resource-name.js';
import type { SecretRef, SecretResult, ValidationContextSecret } from './secret.js';
import {
  type Anchor,
  type BundleEvent,
  type BundleState,
  bundleRoots,
  changeBundle,
  emptyBundle,
  nextShrink,
} from './trust-bundle.js';
import type { StoredBundle, TrustBundleStore } from './trust-bundle-store.js';
import type { VersionCounter } from './versions.js';

/** What is stored as the end of an anchor's need is later by this fraction of the time left: one write serves many renewals. */
const STORE_AHEAD = 1;
const RETRY_STORE_MS = 10_000;

/** Versions are stored so far ahead, in their unit, that one write serves for minutes; and anew when half of it is used. */
const VERSIONS_AHEAD = 600_000_000;

export interface TrustBundleContext {
  readonly clock: Clock;
  readonly source: string;
  /** The longest lifetime, in milliseconds, that a certificate under a root may have. */
  readonly longestTtl: number;
  readonly store: TrustBundleStore;
  readonly versions: VersionCounter;
  readonly onResult: (name: string, result: SecretResult) => void;
  readonly onStoreError: (error: unknown) => void;
  /** The anchors cannot be sent as they are. */
  readonly onInvalid: (error: unknown) => void;
}

export class TrustBundleSecret {
  readonly #context: TrustBundleContext;
  #state: BundleState = emptyBundle;
  #secret: ValidationContextSecret | undefined;
  /** The version of the bundle in which a root first stood, for roots that came later than others. */
  #declarations = 0;
  readonly #introduced = new Map<string, SecretRef>();
  /** What the store is known to hold. */
  #stored: StoredBundle = { ...emptyBundle, version: 0 };
  /** While the store is being written, or is tried again after it failed. */
  #saving: Promise<void> | undefined;
  #storeFails = false;
  #timer: Timer | undefined;
  #retryTimer: Timer | undefined;

  constructor(context: TrustBundleContext) {
    this.#context = context;
  }

  /** Takes up what was stored. Call once, before anything else. */
  async load(): Promise<void> {
    const { store, versions, clock } = this.#context;
    const stored = await store.load();
    versions.atLeast(stored.version);
    this.#stored = stored;
    this.#state = changeBundle(stored, { kind: 'tick', now: clock.now() });
    this.#publish();
    // Clients may come back that hold a bundle from before the restart, without the newest root.
    if (this.#secret && this.#state.anchors.size > 1) {
      for (const [fingerprint, { current }] of this.#state.anchors) {
        if (current) this.#introduced.set(fingerprint, { name: ROOTS_NAME, version: this.#secret.version });
      }
    }
    this.#schedule();
    this.#save();
  }

  get secret(): ValidationContextSecret | undefined {
    return this.#secret;
  }

  get roots(): readonly Certificate[] {
    return bundleRoots(this.#state);
  }

  result(): SecretResult {
    return this.#secret ? { kind: 'secret', secret: this.#secret } : { kind: 'pending', why: 'no trust anchors yet' };
  }

  /** How often the CA's roots have changed. */
  get declarations(): number {
    return this.#declarations;
  }

  /** The CA now stands for exactly these roots. */
  declare(roots: readonly Certificate[]): void {
    const { clock, longestTtl } = this.#context;
    const before = this.#state;
    this.#change({ kind: 'declared', roots, now: clock.now(), longestTtl });
    if (this.#state !== before) this.#declarations += 1;
  }

  /**
   * Takes in a certificate under these roots, valid until `notAfter`, which was asked for when `since` was the count of
   * declarations. Returns the bundle that a client needs before it can verify such a certificate, or undefined if every
   * bundle will do.
   */
  admit(roots: readonly Certificate[], notAfter: number, since: number): SecretRef | undefined {
    // A slow answer from before a change does not take the change back; roots that nobody knows are taken in all the same.
    const isOld = since < this.#declarations && roots.every(({ fingerprint }) => this.#state.anchors.has(fingerprint));
    if (!isOld) this.declare(roots);
    this.#change({ kind: 'granted', roots, notAfter });
    return this.#neededFor(roots);
  }

  /** As {@link admit}, for a certificate from before a restart: what roots its CA has now is not known by it. */
  readmit(roots: readonly Certificate[], notAfter: number): SecretRef | undefined {
    this.#change({ kind: 'restored', roots, notAfter });
    return this.#neededFor(roots);
  }

  /** Whether the CA stands for any of these roots now; true as long as it is not known which it stands for. */
  isCurrent(roots: readonly Certificate[]): boolean {
    const anchors = [...this.#state.anchors.values()];
    if (!anchors.some(({ current }) => current)) return true;
    return roots.some(({ fingerprint }) => this.#state.anchors.get(fingerprint)?.current);
  }

  /** What clients are given, in the order in which it is sent. */
  get anchors(): readonly Anchor[] {
    return bundleRoots(this.#state).flatMap(({ fingerprint }) => this.#state.anchors.get(fingerprint) ?? []);
  }

  #neededFor(roots: readonly Certificate[]): SecretRef | undefined {
    // A version is about to be given to what needs these roots.
    this.#save();
    let needed: SecretRef | undefined;
    for (const { fingerprint } of roots) {
      const ref = this.#introduced.get(fingerprint);
      if (ref && (!needed || ref.version > needed.version)) needed = ref;
    }
    return needed;
  }

  /** Resolves when everything is stored, or cannot be. */
  async close(): Promise<void> {
    this.#timer?.cancel();
    await this.#saving;
    this.#save();
    await this.#saving;
    this.#retryTimer?.cancel();
  }

  #change(event: BundleEvent): void {
    const before = this.#state;
    this.#state = changeBundle(before, event);
    if (this.#state === before) return;
    if (!sameAnchors(before, this.#state)) this.#publish();
    this.#schedule();
    this.#save();
  }

  #publish(): void {
    const roots = bundleRoots(this.#state);
    if (roots.length === 0) return;
    const previous = this.#secret;
    const trustedCa = Buffer.from(joinPem(roots.map(({ pem }) => pem)));
    try {
      assertTrustAnchors(trustedCa);
    } catch (error) {
      this.#context.onInvalid(error);
      return;
    }
    const version = this.#context.versions.next();
    const secret: ValidationContextSecret = {
      kind: 'validation-context',
      name: ROOTS_NAME,
      version,
      source: this.#context.source,
      trustedCa,
      fingerprints: Object.freeze(roots.map(({ fingerprint }) => fingerprint)),
      notAfter: Math.min(...roots.map(({ notAfter }) => notAfter)),
    };
    this.#secret = Object.freeze(secret);
    if (previous) {
      for (const fingerprint of secret.fingerprints) {
        if (!previous.fingerprints.includes(fingerprint))
          this.#introduced.set(fingerprint, { name: ROOTS_NAME, version });
      }
    }
    this.#context.onResult(ROOTS_NAME, this.result());
  }

  #schedule(): void {
    const { clock } = this.#context;
    this.#timer?.cancel();
    const next = nextShrink(this.#state);
    if (next !== undefined) this.#timer = clock.at(next, () => this.#change({ kind: 'tick', now: clock.now() }));
  }

  /** So that no later process gives a version again, whatever its clock says. */
  #versionsAreStored(): boolean {
    const { versions } = this.#context;
    return versions.last === 0 || versions.last + VERSIONS_AHEAD / 2 <= this.#stored.version;
  }

  #save(): void {
    this.#saving ??= this.#write().finally(() => {
      this.#saving = undefined;
    });
  }

  /** Writes until the store holds all that matters; what changes meanwhile goes into the next write. */
  async #write(): Promise<void> {
    const { clock, store, versions, onStoreError } = this.#context;
    this.#retryTimer?.cancel();
    while (!isCovered(this.#state, this.#stored) || !this.#versionsAreStored()) {
      const newest = Math.max(versions.last, Math.floor(clock.now()) * 1_000);
      const next = { ...aheadOf(this.#state, clock.now()), version: newest + VERSIONS_AHEAD };
      try {
        await store.save(next);
        this.#stored = next;
        this.#storeFails = false;
      } catch (error) {
        if (!this.#storeFails) onStoreError(error);
        this.#storeFails = true;
        this.#retryTimer = clock.at(clock.now() + RETRY_STORE_MS, () => this.#save());
        return;
      }
    }
  }
}

/** The state as it is stored: needed for longer than it is by now, so that not every renewal has to be written. */
function aheadOf(state: BundleState, now: number): BundleState {
  const anchors = [...state.anchors].map(([fingerprint, anchor]) => {
    const slack = anchor.current ? Math.max(0, anchor.neededUntil - now) * STORE_AHEAD : 0;
    return [fingerprint, { ...anchor, neededUntil: anchor.neededUntil + slack }] as const;
  });
  return { anchors: new Map(anchors) };
}

function sameAnchors(a: BundleState, b: BundleState): boolean {
  return a.anchors.size === b.anchors.size && [...a.anchors.keys()].every((fingerprint) => b.anchors.has(fingerprint));
}

/** True if what is stored says everything that matters of `state`. */
function isCovered(state: BundleState, stored: BundleState): boolean {
  if (!sameAnchors(state, stored)) return false;
  return [...state.anchors].every(([fingerprint, { current, neededUntil }]) => {
    const known = stored.anchors.get(fingerprint);
    return known !== undefined && known.current === current && known.neededUntil >= neededUntil;
  });
}
