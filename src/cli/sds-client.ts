import type { connectivityState, Client as GrpcClient, Metadata, ServiceError } from '@grpc/grpc-js';
import type { Clock, Timer } from '../clock.js';
import { messageOf, SdsdError } from '../errors.js';
import type { Any, DataSource, SecretMessage } from '../rpc/descriptors.js';
import { probeHttp2, socketFault } from './probe-socket.js';

/** How a secret is asked for: state of the world, incremental, or one request and one answer. */
export type SdsMethod = 'sotw' | 'delta' | 'fetch';

export interface SdsQuery {
  /** Absolute path of the server's Unix socket. */
  readonly socket: string;
  /** The resource name. */
  readonly name: string;
  readonly method: SdsMethod;
  /** How long the first answer may take, in ms. */
  readonly timeoutMs: number;
  readonly clock: Clock;
  /** Ends the query without an error. */
  readonly signal: AbortSignal;
}

/** A secret as the server sent it: checked for its name and type, not for what is inside. */
export type ReceivedSecret =
  | {
      readonly kind: 'tls-certificate';
      readonly name: string;
      readonly version: string;
      /** PEM, or the file in which the server says it is. */
      readonly certificateChain: ReceivedData;
      /** PEM. Never shown unless asked for. */
      readonly privateKey: ReceivedData;
    }
  | {
      readonly kind: 'validation-context';
      readonly name: string;
      readonly version: string;
      readonly trustedCa: ReceivedData;
    };

export type ReceivedData = { readonly bytes: Buffer } | { readonly file: string };

/** The server cannot be reached, or went away: asking again may help. */
export class ServerGone extends SdsdError {}

/**
 * Asks any SDS server for one secret and yields each that it sends, acknowledging it when the next is asked for; `fetch`
 * yields one. Throws ERR_SDSD_SOCKET when there is no server to ask, ERR_SDSD_TIMEOUT when the first secret takes too long,
 * ERR_SDSD_SDS for a gRPC status and for an answer that is not what was asked for.
 */
export async function* receiveSecrets(query: SdsQuery): AsyncGenerator<ReceivedSecret, void, void> {
  const [{ Client, credentials, status }, wire] = await Promise.all([
    import('@grpc/grpc-js'),
    import('../rpc/descriptors.js'),
  ]);
  const client = new Client(`unix:${query.socket}`, credentials.createInsecure(), {
    'grpc.default_authority': 'localhost',
    'grpc.use_local_subchannel_pool': 1,
    'grpc.enable_http_proxy': 0,
  });
  const deadline = startDeadline(query);
  const bytes = (message: Buffer): Buffer => message;
  let question: Timer | undefined;
  let refused: SdsdError | undefined;
  try {
    if (query.method === 'fetch') {
      const answer = await new Promise<Buffer>((resolve, reject) => {
        const request = firstRequest(wire, query);
        const done = (error: ServiceError | null, response?: Buffer): void =>
          error || !response ? reject(error ?? new Error('there is no answer')) : resolve(response);
        const call = client.makeUnaryRequest(wire.sdsMethod('FetchSecrets'), bytes, bytes, request, done);
        deadline.onEnd(() => call.cancel());
      });
      const { secret } = readAnswer(wire, query, answer);
      if (!secret) throw unusable(query, `holds nothing named ${query.name}`);
      yield secret;
      return;
    }
    const method = wire.sdsMethod(query.method === 'sotw' ? 'StreamSecrets' : 'DeltaSecrets');
    const call = client.makeBidiStreamRequest(method, bytes, bytes);
    // The loop below hears of errors while it runs; the one that cancelling makes comes after it.
    call.on('error', () => undefined);
    deadline.onEnd(() => call.cancel());
    call.write(firstRequest(wire, query));
    if (query.method === 'sotw') {
      question = askWhySilent(query, client, wire, status, (error) => {
        refused = error;
        call.cancel();
      });
    }
    for await (const message of call) {
      const { secret, ack } = readAnswer(wire, query, message);
      if (secret) {
        question?.cancel();
        deadline.met();
        yield secret;
      }
      call.write(ack);
    }
    throw ended(query);
  } catch (error) {
    if (query.signal.aborted) return;
    if (refused) throw refused;
    if (deadline.passed) throw await lateness(query, client.getChannel().getConnectivityState(false) === READY);
    if (error instanceof SdsdError) throw error;
    throw await grpcFailure(query, error, status, deadline.left());
  } finally {
    question?.cancel();
    deadline.stop();
    client.close();
  }
}

/** How long the first secret may take, in ms, before the server is asked whether it knows the name at all. */
const ASK_WHY_MS = 300;

/**
 * State of the world has no word for a name that is not served: the stream stays silent. So a server that is silent is asked
 * once more with FetchSecrets, which has one; a server that does not implement that is waited for.
 */
function askWhySilent(
  query: SdsQuery,
  client: GrpcClient,
  wire: Wire,
  codes: Readonly<Record<number, string>>,
  onRefused: (error: SdsdError) => void,
): Timer {
  const bytes = (message: Buffer): Buffer => message;
  const request = firstRequest(wire, { ...query, method: 'fetch' });
  return query.clock.at(query.clock.now() + ASK_WHY_MS, () => {
    client.makeUnaryRequest(wire.sdsMethod('FetchSecrets'), bytes, bytes, request, (error) => {
      const code = codes[error?.code ?? 0] ?? '';
      if (error && REFUSED.has(code)) onRefused(answerFailure(query, code, error.details, error));
    });
  });
}

const REFUSED: ReadonlySet<string> = new Set(['NOT_FOUND', 'PERMISSION_DENIED']);

/** Runs `onEnd` when the time is up or the signal fires, whichever is first. */
function startDeadline({ clock, timeoutMs, signal }: SdsQuery) {
  let end: () => void = () => undefined;
  const endsAt = clock.now() + timeoutMs;
  const state = { passed: false };
  const timer = clock.at(endsAt, () => {
    state.passed = true;
    end();
  });
  const onAbort = (): void => end();
  signal.addEventListener('abort', onAbort);
  return {
    get passed() {
      return state.passed;
    },
    onEnd(callback: () => void): void {
      end = callback;
      if (state.passed || signal.aborted) end();
    },
    /** In ms. */
    left: () => Math.max(0, endsAt - clock.now()),
    met: () => timer.cancel(),
    stop(): void {
      timer.cancel();
      signal.removeEventListener('abort', onAbort);
      end();
    },
  };
}

type Wire = typeof import('../rpc/descriptors.js');

function node(): { id: string; cluster: string; userAgentName: string } {
  return { id: `sdsd-get-${process.pid}`, cluster: 'sdsd', userAgentName: 'sdsd' };
}

function firstRequest(wire: Wire, { name, method }: SdsQuery): Buffer {
  const typeUrl = wire.SECRET_TYPE_URL;
  return method === 'delta'
    ? wire.deltaDiscoveryRequest.encode({ node: node(), typeUrl, resourceNamesSubscribe: [name] })
    : wire.discoveryRequest.encode({ node: node(), typeUrl, resourceNames: [name] });
}

interface ReadAnswer {
  /** Undefined when the answer does not hold the name (yet). */
  readonly secret: ReceivedSecret | undefined;
  /** The request that acknowledges the answer. */
  readonly ack: Buffer;
}

function readAnswer(wire: Wire, query: SdsQuery, message: unknown): ReadAnswer {
  if (!Buffer.isBuffer(message)) throw unusable(query, 'is not a message');
  return query.method === 'delta' ? readDelta(wire, query, message) : readSotw(wire, query, message);
}

function readSotw(wire: Wire, query: SdsQuery, message: Buffer): ReadAnswer {
  const response = decoded(query, () => wire.discoveryResponse.decode(message));
  checkType(wire, query, response.typeUrl);
  const [resource, ...others] = response.resources;
  if (others.length > 0) throw unusable(query, `holds ${others.length + 1} secrets instead of one`);
  return {
    secret: resource && readSecret(wire, query, resource, response.versionInfo),
    ack: wire.discoveryRequest.encode({
      versionInfo: response.versionInfo,
      resourceNames: [query.name],
      typeUrl: wire.SECRET_TYPE_URL,
      responseNonce: response.nonce,
    }),
  };
}

function readDelta(wire: Wire, query: SdsQuery, message: Buffer): ReadAnswer {
  const response = decoded(query, () => wire.deltaDiscoveryResponse.decode(message));
  checkType(wire, query, response.typeUrl);
  if (response.removedResources.includes(query.name)) {
    throw new SdsdError('ERR_SDSD_SDS', `the server on ${query.socket} does not serve ${query.name}`, {
      hint: 'check the name; `sdsd status` lists those that the daemon serves',
    });
  }
  const [resource, ...others] = response.resources;
  if (others.length > 0) throw unusable(query, `holds ${others.length + 1} secrets instead of one`);
  if (resource && resource.name !== query.name) throw unusable(query, `holds ${resource.name} instead`);
  if (resource && !resource.resource) throw unusable(query, 'holds a resource without content');
  return {
    secret: resource?.resource ? readSecret(wire, query, resource.resource, resource.version) : undefined,
    ack: wire.deltaDiscoveryRequest.encode({ typeUrl: wire.SECRET_TYPE_URL, responseNonce: response.nonce }),
  };
}

function checkType(wire: Wire, query: SdsQuery, typeUrl: string): void {
  if (typeUrl !== wire.SECRET_TYPE_URL) throw unusable(query, `is of the type ${JSON.stringify(typeUrl)}`);
}

function readSecret(wire: Wire, query: SdsQuery, resource: Any, version: string): ReceivedSecret {
  checkType(wire, query, resource.type_url);
  const message: SecretMessage = decoded(query, () => wire.secretMessage.decode(resource.value));
  const { name, tlsCertificate, validationContext } = message;
  if (name !== query.name) throw unusable(query, `holds a secret named ${JSON.stringify(name)} instead`);
  if (tlsCertificate) {
    return {
      kind: 'tls-certificate',
      name,
      version,
      certificateChain: data(query, tlsCertificate.certificateChain, 'certificate chain'),
      privateKey: data(query, tlsCertificate.privateKey, 'private key'),
    };
  }
  if (validationContext) {
    return { kind: 'validation-context', name, version, trustedCa: data(query, validationContext.trustedCa, 'roots') };
  }
  throw unusable(query, 'holds neither a certificate nor roots');
}

function data(query: SdsQuery, source: DataSource | null, what: string): ReceivedData {
  if (source?.inlineBytes && source.inlineBytes.length > 0) return { bytes: source.inlineBytes };
  if (source?.inlineString) return { bytes: Buffer.from(source.inlineString) };
  if (source?.filename) return { file: source.filename };
  throw unusable(query, `holds no ${what}`);
}

function decoded<T>(query: SdsQuery, decode: () => T): T {
  try {
    return decode();
  } catch (error) {
    throw unusable(query, `cannot be decoded: ${messageOf(error)}`);
  }
}

function unusable({ socket, name }: SdsQuery, what: string): SdsdError {
  return new SdsdError('ERR_SDSD_SDS', `asked for ${name}, the answer of the server on ${socket} ${what}`, {
    hint: 'check with --socket that this is the socket of an SDS server',
  });
}

function ended({ socket, name }: SdsQuery): ServerGone {
  return new ServerGone('ERR_SDSD_SDS', `asked for ${name}, the server on ${socket} ended the stream`, {
    hint: 'look at the log of the server, or ask with --fetch for the reason',
  });
}

/** The state of a channel over which HTTP/2 was spoken; grpc-js is not loaded when this file is. */
const READY: connectivityState.READY = 2;

/** Why the first secret has not come in time. */
async function lateness({ socket, name, timeoutMs, clock }: SdsQuery, wasReached: boolean): Promise<SdsdError> {
  const fault = wasReached ? undefined : await socketFault(socket, await probeHttp2(socket, clock, MUTE_AFTER_MS));
  if (fault) return gone(fault);
  return new ServerGone(
    'ERR_SDSD_TIMEOUT',
    `the server on ${socket} did not send ${name} within ${timeoutMs / 1_000} s: it may not know the name, or not have it yet`,
    { hint: 'look at `sdsd status`, or ask with --fetch for the reason' },
  );
}

/** How long a server may be silent, in ms, before it counts as mute: one that has already used up its time. */
const MUTE_AFTER_MS = 100;

function gone({ code, message, hint, cause }: SdsdError): ServerGone {
  return new ServerGone(code, message, { ...(hint === undefined ? {} : { hint }), cause });
}

/** @param leftMs how long it may take to find out more. */
async function grpcFailure(
  { socket, name, clock }: SdsQuery,
  error: unknown,
  codes: Readonly<Record<number, string>>,
  leftMs: number,
): Promise<SdsdError> {
  if (!isServiceError(error)) {
    return new SdsdError('ERR_SDSD_SDS', `could not ask ${socket} for ${name}: ${messageOf(error)}`, { cause: error });
  }
  const code = codes[error.code] ?? String(error.code);
  const failure = answerFailure({ socket, name }, code, error.details, error);
  if (!GONE.has(code)) return failure;
  // grpc-js gives what happened to the connection and what the server said the same form.
  const fault = await socketFault(socket, await probeHttp2(socket, clock, Math.max(leftMs, MUTE_AFTER_MS)));
  return gone(fault ?? failure);
}

function answerFailure(
  { socket, name }: Pick<SdsQuery, 'socket' | 'name'>,
  code: string,
  details: string,
  cause: unknown,
): SdsdError {
  return new SdsdError('ERR_SDSD_SDS', `asked for ${name}, the server on ${socket} answered ${code}: ${details}`, {
    hint: hintFor(code),
    cause,
  });
}

/** With these a call ends whose connection was lost. */
const GONE: ReadonlySet<string> = new Set(['UNAVAILABLE', 'CANCELLED', 'INTERNAL']);

function hintFor(code: string): string {
  switch (code) {
    case 'NOT_FOUND':
      return 'check the name; `sdsd status` lists those that the daemon serves';
    case 'PERMISSION_DENIED':
      return 'ask for a name that this user may have';
    default:
      return 'look at `sdsd status` and at the log of the server';
  }
}

function isServiceError(error: unknown): error is { code: number; details: string; metadata: Metadata } {
  return (
    error instanceof Error &&
    'code' in error &&
    typeof error.code === 'number' &&
    'details' in error &&
    typeof error.details === 'string'
  );
}
