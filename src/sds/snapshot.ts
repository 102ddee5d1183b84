/**
 * What every stream is served from: for each name that any stream subscribes to, the secret that may be sent now.
 *
 * A secret that requires another (a certificate under a new root requires the bundle that verifies it) is held until every
 * stream that subscribes to the other holds that version, or until `ackTimeoutMs` is over. Meanwhile streams, new ones too,
 * get the secret that was served before.
 */
import type { Clock, Timer } from '../clock.js';
import type { Caller, Secret, SecretRef, SecretResult, Subscription } from '../secrets/index.js';
import type { SecretManager } from './secret-manager.js';

/** A certificate waits for clients for no more than this share of what the one before it has left. */
const MAX_WAIT_OF_LIFETIME = 0.8;

/** One stream, as the snapshot sees it. */
export interface Subscriber {
  /** The name has something new to send. */
  changed(name: string): void;
  /** The version of `name` that the client holds; undefined if it was never sent one and brought none. */
  holds(name: string): number | undefined;
}

/** A stream's hold on one name. */
export interface Interest {
  /** What may be sent at this moment. */
  current(): SecretResult;
  close(): void;
}

export interface SnapshotOptions {
  readonly manager: SecretManager;
  readonly clock: Clock;
  /** How long a secret waits for clients to acknowledge what it requires. */
  readonly ackTimeoutMs: number;
  /** Told when that time was over for some client. */
  readonly onAckTimeout: (ref: SecretRef, waitingFor: number) => void;
}

const WAITING: SecretResult = {
  kind: 'pending',
  why: 'waits until clients have accepted the trust anchors that it needs',
};

interface Entry {
  readonly subscribers: Set<Subscriber>;
  /** The newest secret that may be sent. */
  released: Secret | undefined;
  /** A newer one that waits for what it requires. */
  held: Secret | undefined;
  /** Ends that wait before the released one expires. */
  timer: Timer | undefined;
}

interface Gate {
  readonly ref: SecretRef;
  readonly laggards: Set<Subscriber>;
  readonly waiting: Set<Entry>;
  readonly timer: Timer;
}

export class Snapshot {
  readonly #options: SnapshotOptions;
  readonly #entries = new Map<string, Entry>();
  readonly #gates = new Map<string, Gate>();
  /** For each required name, the highest version that nobody waits for any more. */
  readonly #opened = new Map<string, number>();

  constructor(options: SnapshotOptions) {
    this.#options = options;
  }

  subscribe(name: string, caller: Caller, subscriber: Subscriber): Interest {
    const entry = this.#entry(name);
    entry.subscribers.add(subscriber);
    let result: SecretResult = { kind: 'pending', why: 'not asked yet' };
    const lease: Subscription = this.#options.manager.subscribe(name, caller, (next) => {
      result = next;
      if (next.kind === 'secret') this.#offer(entry, next.secret, next.before);
      subscriber.changed(name);
    });
    return {
      current: () => (result.kind === 'secret' ? this.#visible(entry, result.secret) : result),
      close: () => {
        lease.close();
        entry.subscribers.delete(subscriber);
        this.#forgetUnused(name, entry);
        this.#caughtUp(subscriber, name);
      },
    };
  }

  /** One answer without a stream. */
  async fetch(name: string, caller: Caller): Promise<SecretResult> {
    const result = await this.#options.manager.generateSecret(name, caller);
    if (result.kind !== 'secret') return result;
    const { secret, before } = result;
    const entry = this.#entries.get(name);
    if (entry) return this.#visible(entry, secret);
    if (!this.#mustWait(secret)) return result;
    return before && !this.#mustWait(before) ? { kind: 'secret', secret: before } : WAITING;
  }

  /** A client has accepted a version of `name`. */
  acknowledged(name: string, subscriber: Subscriber): void {
    this.#caughtUp(subscriber, name);
  }

  close(): void {
    for (const gate of this.#gates.values()) gate.timer.cancel();
    this.#gates.clear();
    for (const entry of this.#entries.values()) entry.timer?.cancel();
  }

  #entry(name: string): Entry {
    let entry = this.#entries.get(name);
    if (!entry) {
      entry = { subscribers: new Set(), released: undefined, held: undefined, timer: undefined };
      this.#entries.set(name, entry);
    }
    return entry;
  }

  /** Takes a secret in, from whichever stream's lease brings it first. */
  #offer(entry: Entry, secret: Secret, before: Secret | undefined): void {
    const newest = entry.held ?? entry.released;
    if (newest && newest.version >= secret.version) return;
    const gate = secret.requires && this.#gateFor(secret.requires);
    entry.timer?.cancel();
    if (gate) {
      // Whoever watches the name now was not here when the one before was served.
      if (!entry.released && before && !this.#mustWait(before)) entry.released = before;
      entry.held = secret;
      gate.waiting.add(entry);
      this.#endBeforeExpiry(entry);
    } else {
      entry.released = secret;
      entry.held = undefined;
    }
  }

  /** A peer may refuse the new certificate, but everybody refuses an expired one: so the wait ends while the old is valid. */
  #endBeforeExpiry(entry: Entry): void {
    if (!entry.released) return;
    const { clock } = this.#options;
    const left = entry.released.notAfter - clock.now();
    entry.timer = clock.at(clock.now() + left * MAX_WAIT_OF_LIFETIME, () => this.#release(entry, true));
  }

  /** The gate in front of what requires `ref`, or undefined when nothing has to wait. */
  #gateFor(ref: SecretRef): Gate | undefined {
    if ((this.#opened.get(ref.name) ?? 0) >= ref.version) return undefined;
    const key = `${ref.name}\0${ref.version}`;
    const existing = this.#gates.get(key);
    if (existing) return existing;
    const laggards = new Set<Subscriber>();
    for (const subscriber of this.#entries.get(ref.name)?.subscribers ?? []) {
      const holds = subscriber.holds(ref.name);
      if (holds !== undefined && holds < ref.version) laggards.add(subscriber);
    }
    if (laggards.size === 0) {
      this.#opened.set(ref.name, ref.version);
      return undefined;
    }
    const { clock, ackTimeoutMs, onAckTimeout } = this.#options;
    const timer = clock.at(clock.now() + ackTimeoutMs, () => {
      onAckTimeout(ref, laggards.size);
      this.#open(key, gate);
    });
    const gate: Gate = { ref, laggards, waiting: new Set(), timer };
    this.#gates.set(key, gate);
    return gate;
  }

  #caughtUp(subscriber: Subscriber, name: string): void {
    for (const [key, gate] of this.#gates) {
      if (gate.ref.name !== name || !gate.laggards.has(subscriber)) continue;
      const stillSubscribed = this.#entries.get(name)?.subscribers.has(subscriber);
      if (stillSubscribed && (subscriber.holds(name) ?? 0) < gate.ref.version) continue;
      gate.laggards.delete(subscriber);
      if (gate.laggards.size === 0) this.#open(key, gate);
    }
  }

  #open(key: string, gate: Gate): void {
    gate.timer.cancel();
    this.#gates.delete(key);
    this.#opened.set(gate.ref.name, Math.max(gate.ref.version, this.#opened.get(gate.ref.name) ?? 0));
    for (const entry of gate.waiting) this.#release(entry);
  }

  #release(entry: Entry, anyway = false): void {
    const secret = entry.held;
    if (!secret || (!anyway && secret.requires && this.#gateFor(secret.requires))) return;
    entry.timer?.cancel();
    entry.released = secret;
    entry.held = undefined;
    for (const subscriber of entry.subscribers) subscriber.changed(secret.name);
    this.#forgetUnused(secret.name, entry);
  }

  /** While a secret is held, what was served before is kept for clients that come back. */
  #forgetUnused(name: string, entry: Entry): void {
    if (entry.subscribers.size === 0 && entry.held === undefined) this.#entries.delete(name);
  }

  /** What may be sent of a name whose newest secret is `newest`. */
  #visible(entry: Entry, newest: Secret): SecretResult {
    if (entry.held === undefined) return { kind: 'secret', secret: newest };
    const { released } = entry;
    if (released && released.notAfter > this.#options.clock.now()) return { kind: 'secret', secret: released };
    return WAITING;
  }

  /** Whether clients have not accepted yet what a secret requires. */
  #mustWait({ requires }: Secret): boolean {
    return requires !== undefined && this.#gateFor(requires) !== undefined;
  }
}
