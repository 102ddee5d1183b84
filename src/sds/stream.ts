/** Drives one stream: feeds the state machine, carries its actions out, and writes one response at a time. */

import type { MemoryBudget } from '../memory-budget.js';
import { type Decoded, type EndStatus, type StreamCall, type StreamHandler, status } from '../rpc/index.js';
import type { Caller, Secret } from '../secrets/index.js';
import type { Client } from './client.js';
import type { SecretEncoder } from './encoding.js';
import type { Interest, Snapshot, Subscriber } from './snapshot.js';
import {
  type Action,
  type Answer,
  changed,
  flush,
  initialState,
  type Offer,
  refresh,
  type Step,
  type StreamState,
} from './stream-state.js';

/** What happens on streams, for logs and metrics. Texts come from clients: they are data. */
export interface StreamEvents {
  rejected(stream: SdsStream, names: readonly string[], error: string): void;
  warned(stream: SdsStream, message: string): void;
  /** A fault of ours, which ended the stream. */
  fault(stream: SdsStream, error: unknown): void;
}

export interface StreamContext {
  readonly snapshot: Snapshot;
  readonly encoder: SecretEncoder;
  readonly events: StreamEvents;
  readonly memory: MemoryBudget;
  /** How many names one stream may watch. */
  readonly maxNames: number;
  /** Called once, when the stream is over. */
  readonly onClosed: (stream: SdsStream) => void;
}

export class SdsStream implements StreamHandler<unknown>, Subscriber {
  readonly client: Client;
  readonly #call: StreamCall;
  readonly #context: StreamContext;
  readonly #onRequest: (state: StreamState, request: never) => Step;
  readonly #interests = new Map<string, Interest>();
  #state: StreamState;
  /** A response is on its way to the client; the next one waits for it. */
  #writing = false;
  /** The bytes of that response. */
  #unread = 0;
  /** A request is being worked on: its answer is flushed once, at its end. */
  #busy = false;
  #over = false;

  /** @param client the connection that it runs on. */
  constructor(
    call: StreamCall,
    client: Client,
    variant: 'sotw' | 'delta',
    onRequest: (state: StreamState, request: never) => Step,
    context: StreamContext,
  ) {
    this.#call = call;
    this.client = client;
    this.#onRequest = onRequest;
    this.#context = context;
    this.#state = initialState(variant, context.maxNames);
  }

  get connectionId(): string {
    return this.#call.connectionId;
  }

  get state(): StreamState {
    return this.#state;
  }

  message(request: Decoded<unknown>): void {
    if (this.#over) return;
    if (!request.ok) {
      this.end(status.INVALID_ARGUMENT, `malformed request: ${request.why}`);
      return;
    }
    this.#busy = true;
    // The codec of this method has decoded the request that its state machine takes.
    const step = this.#onRequest(this.#state, request.value as never);
    const more = step.state.bytes - this.#state.bytes;
    if (more > 0 && !this.#context.memory.fits(more)) {
      this.#end(OUT_OF_MEMORY);
      return;
    }
    this.#apply(step);
    this.#busy = false;
    this.#flush();
  }

  /** Whether it rejects any secret that it was sent. */
  get rejects(): boolean {
    for (const { rejected } of this.#state.watches.values()) if (rejected) return true;
    return false;
  }

  changed(name: string): void {
    this.#unasked(() => changed(this.#state, name));
  }

  /** A secret of this kind was repaired on this connection: what is used together with it, or was rejected, is sent anew. */
  refreshPartners(kind: Secret['kind'], onlyRejected: boolean): void {
    for (const [name, interest] of this.#interests) {
      if (onlyRejected && !this.#state.watches.get(name)?.rejected) continue;
      const result = interest.current();
      if (result.kind === 'secret' && result.secret.kind !== kind) this.#unasked(() => refresh(this.#state, name));
    }
  }

  holds(name: string): number | undefined {
    const watch = this.#state.watches.get(name);
    if (!watch) return undefined;
    // Sent and not yet accepted: the client may still use what it had before, which is older than anything.
    return watch.holds ?? (watch.sent === undefined ? undefined : 0);
  }

  #end(end: EndStatus): void {
    this.#call.end(end);
    this.closed();
  }

  /** Ends the stream. Used for a wrong request and at shutdown, never for a secret that cannot be had. */
  end(code: status, details: string): void {
    this.#end({ code, details });
  }

  closed(): void {
    if (this.#over) return;
    this.#over = true;
    for (const interest of this.#interests.values()) interest.close();
    this.#interests.clear();
    this.#context.memory.add(-this.#state.bytes - this.#unread);
    this.#context.onClosed(this);
  }

  /** A step that no message of this client caused: whoever did must not fail, nor other streams, because this one does. */
  #unasked(step: () => Step): void {
    if (this.#over) return;
    try {
      this.#apply(step());
      this.#flush();
    } catch (error) {
      this.#context.events.fault(this, error);
      this.end(status.INTERNAL, 'internal error');
    }
  }

  #flush(): void {
    if (this.#writing || this.#busy || this.#over) return;
    this.#apply(flush(this.#state, (name) => this.#offer(name)));
  }

  #apply(step: Step): void {
    this.#context.memory.add(step.state.bytes - this.#state.bytes);
    this.#state = step.state;
    for (const action of step.actions) this.#carryOut(action);
  }

  #carryOut(action: Action): void {
    if (this.#over) return;
    switch (action.kind) {
      case 'subscribe':
        this.#interests.set(action.name, this.#context.snapshot.subscribe(action.name, this.#caller(), this));
        return;
      case 'unsubscribe':
        this.#interests.get(action.name)?.close();
        this.#interests.delete(action.name);
        return;
      case 'respond':
        this.#respond(action.answers, action.removed, action.nonce);
        return;
      case 'acknowledged':
        for (const name of action.names) this.#context.snapshot.acknowledged(name, this);
        for (const name of action.names) {
          const secret = this.#secret(name);
          if (secret) this.client.accepted(secret, action.repaired.includes(name));
        }
        this.client.reconsider(this);
        return;
      case 'rejected':
        this.client.rejected(this);
        this.#context.events.rejected(this, action.names, action.error);
        return;
      case 'warn':
        this.#context.events.warned(this, action.message);
        return;
      case 'refuse':
        this.#end(refusal(action));
        return;
    }
  }

  #respond(answers: readonly Answer[], removed: readonly string[], nonce: string): void {
    const secrets = answers.flatMap(({ name, padding }) => {
      const secret = this.#secret(name);
      return secret ? [{ secret, padding }] : [];
    });
    const message = this.#context.encoder.response(this.#state.variant, secrets, removed, nonce);
    this.client.sent(this.#state.highest);
    this.#writing = true;
    this.#unread = message.length;
    this.#context.memory.add(message.length);
    this.#call.send(message, () => {
      this.#writing = false;
      if (this.#over) return;
      this.#context.memory.add(-this.#unread);
      this.#unread = 0;
      this.#flush();
    });
  }

  #caller(): Caller {
    return { connectionId: this.connectionId, nodeId: this.#state.nodeId ?? '' };
  }

  #offer(name: string): Offer {
    const result = this.#interests.get(name)?.current();
    if (!result) return { kind: 'pending' };
    return result.kind === 'secret' ? { kind: 'secret', version: result.secret.version } : { kind: result.kind };
  }

  #secret(name: string): Secret | undefined {
    const result = this.#interests.get(name)?.current();
    return result?.kind === 'secret' ? result.secret : undefined;
  }
}

/** The status that ends a stream when the memory for all clients is used up. */
export const OUT_OF_MEMORY: EndStatus = {
  code: status.RESOURCE_EXHAUSTED,
  details: 'the clients of this server use all the memory that they may: SDSD_MAX_CLIENT_MEMORY',
};

/** The status that ends a stream, or answers a fetch, whose request is refused. */
export function refusal({ reason, why }: Extract<Action, { kind: 'refuse' }>): EndStatus {
  return { code: reason === 'invalid' ? status.INVALID_ARGUMENT : status.RESOURCE_EXHAUSTED, details: why };
}
