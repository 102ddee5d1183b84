/** The three methods of Envoy's SecretDiscoveryService, over one snapshot. */
import type { Clock } from '../clock.js';
import { ClientLog, type Logger } from '../log.js';
import type { MemoryBudget } from '../memory-budget.js';
import {
  type Decoded,
  type DiscoveryRequest,
  deltaDiscoveryRequest,
  discoveryRequest,
  type EndStatus,
  type RpcServer,
  type StreamCall,
  sdsMethod,
  status,
  type UnaryResult,
} from '../rpc/index.js';
import type { Caller, SecretResult } from '../secrets/index.js';
import { Client } from './client.js';
import { onDeltaRequest } from './delta.js';
import { type PaddedSecret, SecretEncoder } from './encoding.js';
import type { SecretManager } from './secret-manager.js';
import { Snapshot } from './snapshot.js';
import { onDiscoveryRequest } from './sotw.js';
import { OUT_OF_MEMORY, refusal, SdsStream, type StreamContext } from './stream.js';
import { initialState, type Step, type StreamState } from './stream-state.js';

export interface SdsServerOptions {
  readonly manager: SecretManager;
  readonly clock: Clock;
  readonly log: Logger;
  /** How long, in milliseconds, a secret waits for clients to acknowledge what it requires. */
  readonly ackTimeoutMs: number;
  /** What all clients may make the daemon remember. */
  readonly memory: MemoryBudget;
  /** How many streams and fetches may be open at a time, and how many names each may watch. */
  readonly maxStreams: number;
  readonly maxNamesPerStream: number;
}

/** One stream, for a person who looks. */
export interface StreamStatus {
  readonly connectionId: string;
  readonly nodeId: string;
  readonly variant: 'sotw' | 'delta';
  readonly names: readonly NameStatus[];
}

export interface NameStatus {
  readonly name: string;
  readonly sentVersion?: number;
  readonly ackedVersion?: number;
  /** The text of the last NACK that no ACK has followed. */
  readonly lastNack?: string;
}

/** What a stream costs besides what it watches, gRPC's part included. Measured, and rounded up. */
const STREAM_BYTES = 16 * 1024;

export class SdsServer {
  readonly #snapshot: Snapshot;
  readonly #encoder = new SecretEncoder();
  readonly #streams = new Set<SdsStream>();
  /** By the number of their connection, while they have a stream. */
  readonly #clients = new Map<string, Client>();
  #fetches = 0;
  readonly #context: StreamContext;
  readonly #maxStreams: number;
  readonly #log: Logger;

  constructor(options: SdsServerOptions) {
    const { log } = options;
    const clientLog = new ClientLog(log, options.clock);
    this.#log = log;
    this.#maxStreams = options.maxStreams;
    this.#snapshot = new Snapshot({
      ...options,
      onAckTimeout: (ref, waitingFor) =>
        log.warn(
          'clients did not accept new trust anchors in time; certificates that need them are sent all the same',
          {
            resource: ref.name,
            version: ref.version,
            streams: waitingFor,
          },
        ),
    });
    this.#context = {
      snapshot: this.#snapshot,
      encoder: this.#encoder,
      memory: options.memory,
      maxNames: options.maxNamesPerStream,
      events: {
        rejected: (stream, names, error) =>
          clientLog.warn(stream.connectionId, 'Envoy rejected a secret; it is sent again when its content changes', {
            node: stream.state.nodeId,
            resource: shown(names),
            error,
          }),
        warned: (stream, message) => clientLog.warn(stream.connectionId, message, { node: stream.state.nodeId }),
        fault: (stream, error) => log.error('a stream failed and was ended', { node: stream.state.nodeId, error }),
      },
      onClosed: (stream) => {
        if (!this.#streams.delete(stream)) return;
        options.memory.add(-STREAM_BYTES);
        const { client, connectionId } = stream;
        client.remove(stream);
        if (client.streams.size === 0) this.#clients.delete(connectionId);
        log.debug('stream closed', { connection: stream.connectionId, node: stream.state.nodeId });
      },
    };
  }

  /** Adds the service's methods to a server. */
  register(server: RpcServer): void {
    server.addStream(sdsMethod('StreamSecrets'), discoveryRequest.decode, (call) =>
      this.#open(call, 'sotw', onDiscoveryRequest),
    );
    server.addStream(sdsMethod('DeltaSecrets'), deltaDiscoveryRequest.decode, (call) =>
      this.#open(call, 'delta', onDeltaRequest),
    );
    server.addUnary(sdsMethod('FetchSecrets'), discoveryRequest.decode, (request, connectionId) =>
      this.#fetch(request, connectionId),
    );
  }

  streams(): StreamStatus[] {
    return [...this.#streams].map(toStatus);
  }

  /** Ends every stream with UNAVAILABLE, so that clients come back at once. */
  close(): void {
    for (const stream of [...this.#streams]) stream.end(status.UNAVAILABLE, 'sdsd is shutting down');
    this.#snapshot.close();
  }

  #open(
    call: StreamCall,
    variant: 'sotw' | 'delta',
    onRequest: (state: StreamState, request: never) => Step,
  ): SdsStream {
    const client = this.#clients.get(call.connectionId) ?? new Client();
    const stream = new SdsStream(call, client, variant, onRequest, this.#context);
    if (this.#isFull()) {
      stream.end(status.RESOURCE_EXHAUSTED, this.#fullText());
    } else if (!this.#context.memory.take(STREAM_BYTES)) {
      stream.end(OUT_OF_MEMORY.code, OUT_OF_MEMORY.details);
    } else {
      this.#clients.set(call.connectionId, client);
      client.streams.add(stream);
      this.#streams.add(stream);
      this.#log.debug('stream opened', { connection: stream.connectionId });
    }
    return stream;
  }

  #isFull(): boolean {
    return this.#streams.size + this.#fetches >= this.#maxStreams;
  }

  #fullText(): string {
    return `this server has ${this.#maxStreams} streams open and takes no more`;
  }

  async #fetch(request: Decoded<DiscoveryRequest>, connectionId: string): Promise<UnaryResult> {
    if (!request.ok) return refuse(status.INVALID_ARGUMENT, `malformed request: ${request.why}`);
    const { maxNames, memory } = this.#context;
    const { state, actions } = onDiscoveryRequest(initialState('sotw', maxNames), request.value);
    const refused = actions.find((action) => action.kind === 'refuse');
    if (refused) return { error: refusal(refused) };
    if (this.#isFull()) return refuse(status.RESOURCE_EXHAUSTED, this.#fullText());
    const bytes = STREAM_BYTES + state.bytes;
    if (!memory.take(bytes)) return { error: OUT_OF_MEMORY };
    this.#fetches += 1;
    try {
      return await this.#answer([...state.watches.keys()], { connectionId, nodeId: state.nodeId ?? '' });
    } finally {
      this.#fetches -= 1;
      memory.add(-bytes);
    }
  }

  async #answer(names: readonly string[], caller: Caller): Promise<UnaryResult> {
    if (names.length === 0) return refuse(status.INVALID_ARGUMENT, 'the request names no resource');
    const results = await Promise.all(names.map((name) => this.#snapshot.fetch(name, caller)));
    const secrets: PaddedSecret[] = [];
    for (const [index, result] of results.entries()) {
      if (result.kind !== 'secret') return { error: fetchError(names[index] ?? '', result) };
      secrets.push({ secret: result.secret, padding: 0 });
    }
    const newest = secrets.reduce((max, { secret }) => Math.max(max, secret.version), 0);
    return { message: this.#encoder.response('sotw', secrets, [], String(newest)) };
  }
}

/** Names for a log line: the first few. */
function shown(names: readonly string[]): string {
  const first = names.slice(0, 5).join(',');
  return names.length > 5 ? `${first} and ${names.length - 5} more` : first;
}

function refuse(code: status, details: string): UnaryResult {
  return { error: { code, details } };
}

function fetchError(name: string, result: Exclude<SecretResult, { kind: 'secret' }>): EndStatus {
  const resource = `secret ${JSON.stringify(name.slice(0, 300))}`;
  switch (result.kind) {
    case 'pending':
      return { code: status.UNAVAILABLE, details: `${resource} is not there yet: ${result.why}` };
    case 'gone':
      return { code: status.NOT_FOUND, details: `${resource} was taken away` };
    case 'denied':
      return {
        code: result.reason === 'forbidden' ? status.PERMISSION_DENIED : status.NOT_FOUND,
        details: `${resource} is not served: ${result.why}`,
      };
  }
}

function toStatus(stream: SdsStream): StreamStatus {
  const { nodeId, variant, watches } = stream.state;
  return {
    connectionId: stream.connectionId,
    nodeId: nodeId ?? '',
    variant,
    names: [...watches].map(([name, { sent, holds, rejected }]) => ({
      name,
      ...(typeof sent === 'number' && { sentVersion: sent }),
      ...(holds !== undefined && { ackedVersion: holds }),
      ...(rejected && { lastNack: rejected.error }),
    })),
  };
}
