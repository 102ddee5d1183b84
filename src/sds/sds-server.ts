/** The three methods of Envoy's SecretDiscoveryService, over one snapshot. */
import type { Clock } from '../clock.js';
import type { Logger } from '../log.js';
import {
  type Decoded,
  type DiscoveryRequest,
  deltaDiscoveryRequest,
  discoveryRequest,
  type EndStatus,
  type RpcServer,
  sdsMethod,
  status,
  type UnaryResult,
} from '../rpc/index.js';
import type { Caller, Secret, SecretResult } from '../secrets/index.js';
import { onDeltaRequest } from './delta.js';
import { type PaddedSecret, SecretEncoder } from './encoding.js';
import type { SecretManager } from './secret-manager.js';
import { Snapshot } from './snapshot.js';
import { onDiscoveryRequest } from './sotw.js';
import { refusal, SdsStream, type StreamContext } from './stream.js';
import { initialState } from './stream-state.js';

export interface SdsServerOptions {
  readonly manager: SecretManager;
  readonly clock: Clock;
  readonly log: Logger;
  /** How long, in milliseconds, a secret waits for clients to acknowledge what it requires. */
  readonly ackTimeoutMs: number;
  /** How many streams may be open at a time, and how many names each may watch. */
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

export class SdsServer {
  readonly #snapshot: Snapshot;
  readonly #encoder = new SecretEncoder();
  readonly #streams = new Set<SdsStream>();
  /** Those that have rejected something, with the highest version that their connection had been sent by then. */
  readonly #rejecting = new Map<SdsStream, number>();
  readonly #context: StreamContext;
  readonly #maxStreams: number;
  readonly #log: Logger;

  constructor(options: SdsServerOptions) {
    const { log } = options;
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
      maxNames: options.maxNamesPerStream,
      events: {
        rejected: (stream, names, error) => {
          this.#rejecting.set(stream, this.#highestOn(stream.connectionId));
          log.warn('Envoy rejected a secret; it is sent again when its content changes', {
            node: stream.state.nodeId,
            resource: names.join(','),
            error,
          });
        },
        warned: (stream, message) => log.warn(message, { node: stream.state.nodeId }),
        fault: (stream, error) => log.error('a stream failed and was ended', { node: stream.state.nodeId, error }),
      },
      onAccepted: (accepted, secret, repaired) => this.#onAccepted(accepted, secret, repaired),
      onClosed: (stream) => {
        this.#streams.delete(stream);
        this.#rejecting.delete(stream);
        log.debug('stream closed', { connection: stream.connectionId, node: stream.state.nodeId });
      },
    };
  }

  /** Adds the service's methods to a server. */
  register(server: RpcServer): void {
    server.addStream(sdsMethod('StreamSecrets'), discoveryRequest.decode, (call) =>
      this.#open(new SdsStream(call, 'sotw', onDiscoveryRequest, this.#context)),
    );
    server.addStream(sdsMethod('DeltaSecrets'), deltaDiscoveryRequest.decode, (call) =>
      this.#open(new SdsStream(call, 'delta', onDeltaRequest, this.#context)),
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

  /** Sends anew what a client may have rejected for the fault of a secret whose successor it has just accepted. */
  #onAccepted({ connectionId }: SdsStream, { kind, version }: Secret, repaired: boolean): void {
    if (repaired) {
      for (const stream of this.#streams) {
        if (stream.connectionId === connectionId) stream.refreshPartners(kind, false);
      }
      return;
    }
    // An Envoy that starts takes a bad certificate unseen, and then rejects the roots for it: so that ACK told nothing, and
    // what counts is that the certificate has changed since.
    for (const [stream, highestThen] of this.#rejecting) {
      if (stream.connectionId === connectionId && version > highestThen) stream.refreshPartners(kind, true);
    }
  }

  #highestOn(connectionId: string): number {
    let highest = 0;
    for (const stream of this.#streams) {
      if (stream.connectionId === connectionId) highest = Math.max(highest, stream.state.highest);
    }
    return highest;
  }

  #open(stream: SdsStream): SdsStream {
    if (this.#streams.size >= this.#maxStreams) {
      stream.end(status.RESOURCE_EXHAUSTED, `this server has ${this.#maxStreams} streams open and takes no more`);
    } else {
      this.#streams.add(stream);
      this.#log.debug('stream opened', { connection: stream.connectionId });
    }
    return stream;
  }

  async #fetch(request: Decoded<DiscoveryRequest>, connectionId: string): Promise<UnaryResult> {
    if (!request.ok) return refuse(status.INVALID_ARGUMENT, `malformed request: ${request.why}`);
    const { maxNames } = this.#context;
    const { state, actions } = onDiscoveryRequest(initialState('sotw', maxNames), request.value);
    const refused = actions.find((action) => action.kind === 'refuse');
    if (refused) return { error: refusal(refused) };
    const names = [...state.watches.keys()];
    if (names.length === 0) return refuse(status.INVALID_ARGUMENT, 'the request names no resource');
    const caller: Caller = { connectionId, nodeId: state.nodeId ?? '' };
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
