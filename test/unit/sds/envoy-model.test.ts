/**
 * The state machines against a small model of an Envoy: whatever happens in whatever order, and however slowly either side
 * reads, the client ends with the newest secret of every name that it is subscribed to, is told nothing twice that it did
 * not ask for twice, and the two fall silent.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { type DeltaDiscoveryRequest, type DiscoveryRequest, SECRET_TYPE_URL } from '../../../src/rpc/index.js';
import { onDeltaRequest } from '../../../src/sds/delta.js';
import { onDiscoveryRequest } from '../../../src/sds/sotw.js';
import {
  type Action,
  changed,
  flush,
  initialState,
  type Offer,
  refresh,
  type Step,
  type StreamState,
} from '../../../src/sds/stream-state.js';

const NAMES = ['A', 'B', 'C'] as const;
type Name = (typeof NAMES)[number];

type Command =
  | {
      readonly kind: 'subscribe' | 'unsubscribe' | 'change' | 'deny' | 'pend' | 'refresh' | 'repeat';
      readonly name: Name;
    }
  | { readonly kind: 'deliver'; readonly accept: boolean }
  | { readonly kind: 'serve' | 'reconnect' };

const command: fc.Arbitrary<Command> = fc.oneof(
  fc.record({
    kind: fc.constantFrom('subscribe', 'unsubscribe', 'change', 'deny', 'pend', 'refresh', 'repeat'),
    name: fc.constantFrom(...NAMES),
  }),
  fc.record({ kind: fc.constant('deliver'), accept: fc.boolean() }),
  fc.record({ kind: fc.constantFrom('serve', 'reconnect') }),
);

interface Response {
  readonly secrets: readonly { readonly name: string; readonly version: number; readonly padding: number }[];
  readonly removed: readonly string[];
  readonly nonce: string;
}

type Request = DiscoveryRequest | DeltaDiscoveryRequest;

/** One Envoy, one stream of our server, and the two queues between them. */
class World {
  readonly #variant: 'sotw' | 'delta';
  readonly #offers = new Map<string, Offer>(NAMES.map((name, i) => [name, { kind: 'secret', version: i + 1 }]));
  #nextVersion = 10;
  #server: StreamState;
  /** At most one response is on its way: the driver waits until it is written. */
  #toClient: Response | undefined;
  #toServer: Request[] = [];
  readonly wanted = new Set<string>();
  /** What Envoy uses, and the last bytes that it looked at, accepted or not. */
  readonly holds = new Map<string, number>();
  readonly #seen = new Map<string, string>();
  /** The last version of each name that was refused: nothing is to be said of it until it changes. */
  readonly refused = new Map<string, number>();
  /** How often each name may still be sent: once for each time it was asked for, or changed. */
  readonly #due = new Map<string, number>();
  #lastNonce = '';
  #lastVersion = '';
  #isFirst = true;

  constructor(variant: 'sotw' | 'delta') {
    this.#variant = variant;
    this.#server = initialState(variant, 100);
  }

  run(command: Command): void {
    switch (command.kind) {
      case 'subscribe':
        if (this.wanted.has(command.name)) return;
        this.wanted.add(command.name);
        this.#request({ subscribe: [command.name] });
        return;
      case 'unsubscribe':
        if (!this.wanted.delete(command.name)) return;
        this.holds.delete(command.name);
        this.#seen.delete(command.name);
        this.#request({ unsubscribe: [command.name] });
        return;
      case 'change':
        this.#offer(command.name, { kind: 'secret', version: this.#nextVersion++ });
        return;
      case 'deny':
        this.#offer(command.name, { kind: 'denied' });
        return;
      case 'pend':
        this.#offer(command.name, { kind: 'pending' });
        return;
      case 'repeat':
        // The snapshot says again what it said before.
        this.#take(changed(this.#server, command.name));
        return;
      case 'refresh':
        this.#allow(command.name);
        this.#take(refresh(this.#server, command.name));
        return;
      case 'serve':
        this.#serve();
        return;
      case 'deliver':
        this.#deliver(command.accept);
        return;
      case 'reconnect':
        this.#reconnect();
        return;
    }
  }

  /** Lets everything arrive, all accepted. Returns how many messages that took. */
  settle(): number {
    let messages = 0;
    for (const name of NAMES) {
      if (this.#offers.get(name)?.kind !== 'secret')
        this.#offer(name, { kind: 'secret', version: this.#nextVersion++ });
    }
    while (this.#toServer.length > 0 || this.#toClient) {
      this.#serve();
      this.#deliver(true);
      messages += 1;
      assert.ok(messages < 1_000, 'the two do not fall silent');
    }
    return messages;
  }

  newest(name: string): number | undefined {
    const offer = this.#offers.get(name);
    return offer?.kind === 'secret' ? offer.version : undefined;
  }

  get server(): StreamState {
    return this.#server;
  }

  #offer(name: string, offer: Offer): void {
    this.#offers.set(name, offer);
    this.#allow(name);
    this.#take(changed(this.#server, name));
  }

  #serve(): void {
    const request = this.#toServer.shift();
    if (!request) return;
    const step =
      'resourceNames' in request ? onDiscoveryRequest(this.#server, request) : onDeltaRequest(this.#server, request);
    this.#take(step);
  }

  /** Does what the driver does: takes the state, and flushes when nothing is on its way. */
  #take(step: Step): void {
    this.#server = step.state;
    if (this.#toClient) return;
    const flushed = flush(this.#server, (name) => this.#offers.get(name) ?? { kind: 'pending' });
    this.#server = flushed.state;
    for (const action of flushed.actions) this.#respond(action);
  }

  #respond(action: Action): void {
    if (action.kind !== 'respond') return;
    assert.equal(this.#toClient, undefined, 'one response at a time');
    this.#toClient = {
      secrets: action.answers.map(({ name, padding }) => ({ name, padding, version: this.newest(name) ?? Number.NaN })),
      removed: action.removed,
      nonce: action.nonce,
    };
  }

  #deliver(accept: boolean): void {
    const response = this.#toClient;
    if (!response) return;
    this.#toClient = undefined;
    for (const { name, version, padding } of response.secrets) {
      if (!this.wanted.has(name)) continue;
      const bytes = `${version}.${padding}`;
      // Envoy does not look at the same bytes twice: after a rejection they would be accepted without effect.
      this.#spend(name);
      const isNew = this.#seen.get(name) !== bytes;
      this.#seen.set(name, bytes);
      if (accept && isNew) this.holds.set(name, version);
      if (!accept) this.refused.set(name, version);
    }
    if (this.#variant === 'delta') for (const name of response.removed) this.#seen.delete(name);
    this.#lastNonce = response.nonce;
    if (accept) this.#lastVersion = response.nonce;
    this.#request({ nonce: response.nonce, ...(accept ? {} : { error: 'no' }) });
    this.#take({ state: this.#server, actions: [] });
  }

  #allow(name: string): void {
    this.#due.set(name, (this.#due.get(name) ?? 0) + 1);
  }

  #spend(name: string): void {
    const left = (this.#due.get(name) ?? 0) - 1;
    assert.ok(left >= 0, `${name} is sent though nobody asked and nothing changed`);
    this.#due.set(name, left);
  }

  #reconnect(): void {
    this.#server = initialState(this.#variant, 100);
    this.#toClient = undefined;
    this.#toServer = [];
    this.#isFirst = true;
    // A new subscription evaluates what comes anew.
    this.#seen.clear();
    this.#request({ subscribe: [...this.wanted] });
  }

  #request(part: { subscribe?: string[]; unsubscribe?: string[]; nonce?: string; error?: string }): void {
    const head = {
      node: this.#isFirst ? { id: 'envoy' } : null,
      typeUrl: SECRET_TYPE_URL,
      responseNonce: part.nonce ?? (this.#variant === 'sotw' && !this.#isFirst ? this.#lastNonce : ''),
      errorDetail: part.error === undefined ? null : { code: 13, message: part.error },
    };
    // Without a nonce, state of the world asks for everything again.
    const asked = this.#variant === 'sotw' && head.responseNonce === '' ? [...this.wanted] : (part.subscribe ?? []);
    for (const name of asked) this.#allow(name);
    const initial = this.#isFirst ? Object.fromEntries([...this.holds].map(([name, v]) => [name, String(v)])) : {};
    this.#isFirst = false;
    this.#toServer.push(
      this.#variant === 'sotw'
        ? { ...head, versionInfo: this.#lastVersion, resourceNames: [...this.wanted] }
        : {
            ...head,
            resourceNamesSubscribe: part.subscribe ?? [],
            resourceNamesUnsubscribe: part.unsubscribe ?? [],
            initialResourceVersions: initial,
          },
    );
  }
}

for (const variant of ['sotw', 'delta'] as const) {
  describe(`an Envoy on a ${variant} stream`, () => {
    it('ends with the newest secret of every name that it wants, and both fall silent', () => {
      fc.assert(
        fc.property(fc.array(command, { maxLength: 60 }), (commands) => {
          const world = new World(variant);
          world.run({ kind: 'reconnect' });
          for (const each of commands) world.run(each);
          world.settle();
          for (const name of world.wanted) {
            const newest = world.newest(name);
            assert.ok(world.holds.get(name) === newest || world.refused.get(name) === newest, name);
          }
          assert.equal(world.settle(), 0, 'nothing is said any more');
        }),
        { numRuns: 3_000, seed: 20_261_201 },
      );
    });

    it('is watched for exactly what it wants', () => {
      fc.assert(
        fc.property(fc.array(command, { maxLength: 60 }), (commands) => {
          const world = new World(variant);
          world.run({ kind: 'reconnect' });
          for (const each of commands) world.run(each);
          world.settle();
          assert.deepEqual([...world.server.watches.keys()].sort(), [...world.wanted].sort());
        }),
        { numRuns: 1_000, seed: 4 },
      );
    });
  });
}
