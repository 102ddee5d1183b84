/**
 * What one stream knows, and how events change it: the part that state of the world (`sotw.ts`) and delta (`delta.ts`)
 * share. Everything here is pure: `(state, event) → (state, actions)`. The driver (`stream.ts`) carries the actions out.
 *
 * A request changes what is wanted; a flush decides what is sent, from what the snapshot offers at that moment. So a stream
 * whose client reads slowly is flushed later, and only the newest secret of each name is ever sent.
 */
import { SECRET_TYPE_URL } from '../rpc/index.js';

/** What the snapshot has for a name at this moment. `held`: a version exists, and must not be sent yet. */
export type Offer =
  | { readonly kind: 'secret'; readonly version: number }
  | { readonly kind: 'pending' }
  | { readonly kind: 'denied' }
  | { readonly kind: 'gone' };

export type Lookup = (name: string) => Offer;

/** What this stream knows of one name that it subscribes to. */
export interface Watch {
  /** Last told to the client: a version, or that there is no such resource. Undefined: nothing yet. */
  readonly sent: number | 'absent' | undefined;
  /** The version that the client holds: the last one it accepted, here or (by its own word) on an earlier stream. */
  readonly holds: number | undefined;
  /** The last version that the client refused, and why; cleared by the next ACK. */
  readonly rejected: { readonly version: number | undefined; readonly error: string } | undefined;
  /** The protocol demands an answer, even if it repeats what was sent. */
  readonly owed: boolean;
  /** The client is to look at it anew, so it is sent again in other bytes. */
  readonly refresh: boolean;
  /** How many newlines were added to what was sent, to make the same content other bytes. */
  readonly padding: number;
}

/** One secret in a response. */
export interface Answer {
  readonly name: string;
  /** Newlines to add to its PEM. 0: as it is, in the bytes that all streams share. */
  readonly padding: number;
}

/** A response without ACK or NACK so far. */
export interface Unanswered {
  readonly nonce: string;
  readonly versions: readonly (readonly [name: string, version: number])[];
}

export interface StreamState {
  readonly variant: 'sotw' | 'delta';
  /** How many names it may watch at a time. */
  readonly maxNames: number;
  /** Undefined until the first request. */
  readonly nodeId: string | undefined;
  readonly watches: ReadonlyMap<string, Watch>;
  /** Names that may have something to send. */
  readonly dirty: ReadonlySet<string>;
  /** Nonce of the latest response; '' before the first. */
  readonly nonce: string;
  /** Highest version sent so far, and how often a response repeated it or an older one. */
  readonly highest: number;
  readonly repeats: number;
  /** Oldest first; see `remembered`. */
  readonly unanswered: readonly Unanswered[];
  /** Names that cannot be those of secrets, and are not watched: told as removed in the next response (delta). */
  readonly impossible: readonly string[];
  /** What the daemon remembers of all this, in bytes, by estimate. */
  readonly bytes: number;
  /** The client was told of once that asks by wildcard. */
  readonly warned: boolean;
}

export type Action =
  | { readonly kind: 'subscribe'; readonly name: string }
  | { readonly kind: 'unsubscribe'; readonly name: string }
  | {
      readonly kind: 'respond';
      readonly answers: readonly Answer[];
      readonly removed: readonly string[];
      /** Also the response's version. */
      readonly nonce: string;
    }
  /** `repaired`: those of the names whose earlier version the client had rejected. */
  | { readonly kind: 'acknowledged'; readonly names: readonly string[]; readonly repaired: readonly string[] }
  | { readonly kind: 'rejected'; readonly names: readonly string[]; readonly error: string }
  | { readonly kind: 'warn'; readonly message: string }
  /** The request itself is wrong, or asks for too much: the stream ends with INVALID_ARGUMENT or RESOURCE_EXHAUSTED. */
  | { readonly kind: 'refuse'; readonly reason: 'invalid' | 'exhausted'; readonly why: string };

export interface Step {
  readonly state: StreamState;
  readonly actions: readonly Action[];
}

/** Characters. No secret has a longer name, and what is remembered for a client has to end somewhere. */
const MAX_NAME_LENGTH = 2_048;

/** How many characters of such names may wait for a client to read that they are removed. */
const MAX_IMPOSSIBLE_LENGTH = 1_000_000;

/** Bytes. What Envoy calls itself is shown and logged, and cut to this. */
const MAX_NODE_ID = 256;

/** What one watched name costs, besides its characters, and one version that waits for its ACK. Measured, and rounded up. */
const BYTES_PER_NAME = 1_600;
const BYTES_PER_VERSION = 80;

/** A client that never answers is remembered for this many responses, and versions in them; older answers are ignored. */
const MAX_UNANSWERED = 100;
const MAX_UNANSWERED_VERSIONS = 10_000;

const NEW_WATCH: Watch = {
  sent: undefined,
  holds: undefined,
  rejected: undefined,
  owed: true,
  refresh: false,
  padding: 0,
};

export function initialState(variant: 'sotw' | 'delta', maxNames: number): StreamState {
  return {
    variant,
    maxNames,
    nodeId: undefined,
    watches: new Map(),
    dirty: new Set(),
    nonce: '',
    highest: 0,
    repeats: 0,
    unanswered: [],
    impossible: [],
    bytes: 0,
    warned: false,
  };
}

/** What every request carries, in either variant. */
export interface RequestHead {
  readonly node: { readonly id: string } | null;
  readonly typeUrl: string;
}

/**
 * Begins the step of a request: the draft in which it is worked on, or the step that refuses it. Envoy names its node in
 * the first request, and need not repeat it.
 */
export function begin(state: StreamState, { node, typeUrl }: RequestHead): Draft | Step {
  const refuse = (why: string): Step => ({ state, actions: [{ kind: 'refuse', reason: 'invalid', why }] });
  if (typeUrl !== '' && typeUrl !== SECRET_TYPE_URL) {
    return refuse(`type URL ${JSON.stringify(typeUrl.slice(0, 200))} is not served here; this is ${SECRET_TYPE_URL}`);
  }
  const draft = new Draft(state);
  if (state.nodeId !== undefined) return draft;
  if (!node?.id) return refuse('missing node information: the first request of a stream needs node.id');
  draft.set({ nodeId: cut(node.id) });
  return draft;
}

/** The beginning of a text, as a text of its own: a slice would keep the whole in memory. */
function cut(text: string): string {
  const bytes = Buffer.from(text);
  return bytes.length <= MAX_NODE_ID ? text : `${bytes.subarray(0, MAX_NODE_ID).toString()}…`;
}

function bytesOf(name: string): number {
  return BYTES_PER_NAME + 2 * name.length;
}

/** A working copy for one step. */
export class Draft {
  #state: StreamState;
  #watches: Map<string, Watch> | undefined;
  #dirty: Set<string> | undefined;
  readonly actions: Action[] = [];

  constructor(state: StreamState) {
    this.#state = state;
  }

  get state(): StreamState {
    return this.#state;
  }

  set(change: Partial<StreamState>): void {
    this.#state = { ...this.#state, ...change };
  }

  watch(name: string): Watch | undefined {
    return this.#state.watches.get(name);
  }

  update(name: string, change: Partial<Watch>): void {
    const before = this.watch(name);
    this.#ownWatches().set(name, { ...(before ?? NEW_WATCH), ...change });
    if (!before) this.#book(bytesOf(name));
  }

  /** Subscribes to a name, or demands the answer to one again. */
  demand(name: string): void {
    if (!this.watch(name)) this.actions.push({ kind: 'subscribe', name });
    this.update(name, { owed: true });
    this.markDirty(name);
  }

  forget(name: string): void {
    if (!this.#state.watches.has(name)) return;
    this.#ownWatches().delete(name);
    this.#book(-bytesOf(name));
    this.clearDirty(name);
    this.actions.push({ kind: 'unsubscribe', name });
  }

  markDirty(name: string): void {
    if (this.#state.dirty.has(name)) return;
    this.#ownDirty().add(name);
  }

  clearDirty(name: string): void {
    if (!this.#state.dirty.has(name)) return;
    this.#ownDirty().delete(name);
  }

  /** Books the ACK (no error) or NACK of the response with this nonce, if one waits for it. */
  answer(nonce: string, error: string | undefined): void {
    const entry = this.#state.unanswered.find((response) => response.nonce === nonce);
    if (!entry) return;
    this.setUnanswered(this.#state.unanswered.filter((response) => response !== entry));
    const names: string[] = [];
    const repaired: string[] = [];
    for (const [name, version] of entry.versions) {
      const watch = this.watch(name);
      if (!watch) continue;
      names.push(name);
      if (error !== undefined) {
        this.update(name, { rejected: { version, error } });
      } else {
        if (watch.rejected && (watch.rejected.version ?? 0) < version) repaired.push(name);
        this.update(name, { holds: version, rejected: undefined });
      }
    }
    this.actions.push(
      error === undefined ? { kind: 'acknowledged', names, repaired } : { kind: 'rejected', names, error },
    );
  }

  setUnanswered(unanswered: readonly Unanswered[]): void {
    this.#book(BYTES_PER_VERSION * (versionsIn(unanswered) - versionsIn(this.#state.unanswered)));
    this.set({ unanswered });
  }

  /** Takes names in to be told as removed, or lets go of them. */
  setImpossible(impossible: readonly string[]): void {
    this.#book(2 * (lengthOf(impossible) - lengthOf(this.#state.impossible)));
    this.set({ impossible });
  }

  step(): Step {
    return { state: this.#state, actions: this.actions };
  }

  #book(bytes: number): void {
    this.set({ bytes: this.#state.bytes + bytes });
  }

  #ownWatches(): Map<string, Watch> {
    if (!this.#watches) {
      this.#watches = new Map(this.#state.watches);
      this.set({ watches: this.#watches });
    }
    return this.#watches;
  }

  #ownDirty(): Set<string> {
    if (!this.#dirty) {
      this.#dirty = new Set(this.#state.dirty);
      this.set({ dirty: this.#dirty });
    }
    return this.#dirty;
  }
}

function versionsIn(unanswered: readonly Unanswered[]): number {
  return unanswered.reduce((sum, { versions }) => sum + versions.length, 0);
}

function lengthOf(names: readonly string[]): number {
  return names.reduce((sum, { length }) => sum + length, 0);
}

/**
 * The names of a request that can be watched, each once; no more than the stream may watch and one, however many there are.
 * `*` asks for everything, which no secret server gives.
 */
export function plainNames(draft: Draft, names: readonly string[]): ReadonlySet<string> {
  const plain = new Set<string>();
  const tooLong = new Set<string>();
  for (const name of names) {
    if (name.length > MAX_NAME_LENGTH) tooLong.add(name);
    else plain.add(name);
    if (plain.size > draft.state.maxNames + 1) break;
  }
  if (plain.delete('*') && !draft.state.warned) {
    draft.set({ warned: true });
    draft.actions.push({ kind: 'warn', message: 'the wildcard name * is ignored: ask by name' });
  }
  // State of the world has no word for what is not there.
  if (tooLong.size > 0 && draft.state.variant === 'delta') {
    draft.setImpossible([...new Set([...draft.state.impossible, ...tooLong])]);
  }
  return plain;
}

/** What a request comes to, unless its stream then has more to remember than it may: then the request changes nothing. */
export function within(before: StreamState, after: Draft): Step {
  const refuse = (why: string): Step => ({ state: before, actions: [{ kind: 'refuse', reason: 'exhausted', why }] });
  if (after.state.watches.size > before.maxNames) {
    return refuse(`one stream may subscribe to ${before.maxNames} names, and no more`);
  }
  if (lengthOf(after.state.impossible) > MAX_IMPOSSIBLE_LENGTH) {
    return refuse(`names longer than ${MAX_NAME_LENGTH} characters are not served, and this stream asks for too many`);
  }
  return after.step();
}

/** The snapshot has something new for a name. */
export function changed(state: StreamState, name: string): Step {
  const draft = new Draft(state);
  if (draft.watch(name)) draft.markDirty(name);
  return draft.step();
}

/**
 * Sends what differs from what this stream was last sent, or is owed, in one response. Called when the client can take
 * one. A name that is `pending` stays owed until there is something.
 */
export function flush(state: StreamState, lookup: Lookup): Step {
  if (state.dirty.size === 0 && state.impossible.length === 0) return { state, actions: [] };
  const draft = new Draft(state);
  const found: Found[] = [];
  const removed: string[] = state.variant === 'delta' ? [...state.impossible] : [];
  if (state.impossible.length > 0) draft.setImpossible([]);
  for (const name of state.dirty) {
    draft.clearDirty(name);
    const watch = draft.watch(name);
    if (!watch) continue;
    const offer = lookup(name);
    if (offer.kind === 'secret') {
      const { version } = offer;
      if (watch.owed || watch.refresh || watch.sent !== version)
        found.push({ name, version, padding: padding(watch, version) });
    } else if (state.variant === 'delta' && isRemoval(offer, watch)) {
      removed.push(name);
    } else if (offer.kind !== 'pending') {
      draft.update(name, { owed: false });
    }
  }
  if (found.length > 0 || removed.length > 0) respond(draft, found, removed);
  return draft.step();
}

interface Found extends Answer {
  readonly version: number;
}

/** Envoy takes bytes that it has seen for evaluated: what it is to evaluate again has to be other bytes. */
function padding(watch: Watch, version: number): number {
  if (watch.sent !== version) return 0;
  return watch.refresh || watch.rejected?.version === version ? watch.padding + 1 : watch.padding;
}

/**
 * The client has accepted the repaired partner of a name. Envoy may have rejected this one for its partner's fault, and
 * would not look at the same bytes again.
 */
export function refresh(state: StreamState, name: string): Step {
  const draft = new Draft(state);
  if (typeof draft.watch(name)?.sent === 'number') {
    draft.update(name, { refresh: true, rejected: undefined });
    draft.markDirty(name);
  }
  return draft.step();
}

/** The newest of the responses that wait for an answer, as many as are remembered, and one at least. */
function remembered(unanswered: readonly Unanswered[]): readonly Unanswered[] {
  let first = Math.max(0, unanswered.length - MAX_UNANSWERED);
  while (first < unanswered.length - 1 && versionsIn(unanswered.slice(first)) > MAX_UNANSWERED_VERSIONS) first++;
  return unanswered.slice(first);
}

/** A removal is told to a client that asks, or that holds what is gone; never twice. */
function isRemoval(offer: Offer, watch: Watch): boolean {
  if (offer.kind !== 'denied' && offer.kind !== 'gone') return false;
  return watch.owed || typeof watch.sent === 'number';
}

/**
 * Versions grow over the whole process, so the version of a secret that is newer than all that this stream has seen serves
 * as nonce too, and one encoded response serves every stream. What repeats or mixes gets a fraction: still greater than all
 * before, and unique on this stream.
 */
function respond(draft: Draft, found: readonly Found[], removed: readonly string[]): void {
  const { highest, repeats, unanswered } = draft.state;
  const newest = found.reduce((max, { version }) => Math.max(max, version), highest);
  const shared = found.length === 1 && removed.length === 0 && newest > highest;
  const nonce = shared ? `${newest}` : `${newest}.${String(repeats + 1).padStart(6, '0')}`;
  for (const { name, version, padding } of found) {
    draft.update(name, { sent: version, owed: false, refresh: false, padding });
  }
  for (const name of removed)
    if (draft.watch(name)) draft.update(name, { sent: 'absent', holds: undefined, owed: false });
  const versions = found.map(({ name, version }) => [name, version] as const);
  draft.set({
    nonce,
    highest: newest,
    repeats: shared ? repeats : repeats + 1,
  });
  draft.setUnanswered(remembered([...unanswered, { nonce, versions }]));
  const answers = found.map(({ name, padding }) => ({ name, padding }));
  draft.actions.push({ kind: 'respond', answers, removed, nonce });
}
