/**
 * A gRPC server whose streams speak in ready bytes. grpc-js gives each stream to a server interceptor, which takes it over
 * before a Duplex is made for it: a push costs one write, and an encoded message may go to any number of streams.
 */
import http2, { type Http2Session } from 'node:http2';
import { createServer, type Socket } from 'node:net';
import {
  Server,
  ServerCredentials,
  ServerInterceptingCall,
  type ServerInterceptingCallInterface,
  type ServerMethodDefinition,
  status,
} from '@grpc/grpc-js';
import type { Clock } from '../clock.js';
import { messageOf } from '../errors.js';
import type { MemoryBudget } from '../memory-budget.js';
import { HTTP2_GREETING, HTTP2_PREFACE, type ListenOptions, listenUnix, type UnixListener } from '../sockets/index.js';
import { DeafSessions, leavesDeafSessions } from './deaf-sessions.js';
import type { Decode } from './descriptors.js';
import { UnfinishedMessages } from './unfinished-messages.js';

export { status } from '@grpc/grpc-js';

/** A status to end a call with. */
export interface EndStatus {
  readonly code: status;
  readonly details: string;
}

/** A request as it came: malformed protobuf is told, not thrown. */
export type Decoded<T> = { readonly ok: true; readonly value: T } | { readonly ok: false; readonly why: string };

/** The server's side of one stream. */
export interface StreamCall {
  /** Which connection it runs on: one Envoy. */
  readonly connectionId: string;
  /** Writes one message; `written` is called when it has left for the client. */
  send(message: Buffer, written: () => void): void;
  /** Ends the stream. What was sent before arrives first. */
  end(end: EndStatus): void;
}

export interface StreamHandler<Request> {
  message(request: Decoded<Request>): void;
  /** The stream is over, whoever ended it. Called once. */
  closed(): void;
}

export type UnaryResult = { readonly message: Buffer } | { readonly error: EndStatus };

export interface RpcServerOptions {
  /** Told of a fault of ours while a call was handled; the call was ended with INTERNAL. */
  readonly onFault: (path: string, error: unknown) => void;
  readonly clock: Clock;
  /** How many connections may be open at a time; one more is cut at once. */
  readonly maxConnections: number;
  /** What all clients may make the daemon remember. */
  readonly memory: MemoryBudget;
  /** Told when connections begin to be refused. */
  readonly onRefused: (why: string) => void;
}

/** What a connection costs before it begins, and what its HTTP/2 session adds. Measured, and rounded up. */
const SOCKET_BYTES = 8 * 1024;
const SESSION_BYTES = 56 * 1024;

const NO_MEMORY = 'the clients use all the memory that they may';

/** How long a client may take to begin. */
const GREETING_TIMEOUT_MS = 10_000;

const ignore = (): void => undefined;

type AnyHandler = (call: StreamCall) => StreamHandler<unknown>;

export class RpcServer {
  readonly #server: Server;
  readonly #injector: ReturnType<Server['createConnectionInjector']>;
  readonly #streams = new Map<string, AnyHandler>();
  readonly #sockets = new Set<Socket>();
  /** Those that have not begun, the oldest first. */
  readonly #silent = new Set<Socket>();
  readonly #options: RpcServerOptions;
  readonly #deaf: DeafSessions;
  /** The connection that is being given to grpc-js: its session is made meanwhile. */
  #injected: Socket | undefined;
  #accepted = 0;
  /** The last connection was one too many; told once until there is room again. */
  #full = false;

  constructor(options: RpcServerOptions) {
    this.#options = options;
    this.#server = new Server({
      'grpc.max_concurrent_streams': 100_000,
      'grpc.max_receive_message_length': 4 * 1024 * 1024,
      'grpc.enable_channelz': 0,
      interceptors: [(method, call) => this.#intercept(method, call)],
    });
    this.#deaf = new DeafSessions(options.clock);
    const onSession = (session: Http2Session): void => {
      if (leavesDeafSessions && this.#injected) this.#deaf.watch(this.#injected, session);
    };
    const unfinished = new UnfinishedMessages(options.memory);
    this.#injector = withHttp2Server(
      (server) => server.on('session', onSession).on('stream', (stream) => unfinished.watch(stream)),
      () => this.#server.createConnectionInjector(ServerCredentials.createInsecure()),
    );
  }

  /** Serves a bidirectional stream: `open` is called for each, and answers with what handles its messages. */
  addStream<Request>(path: string, decode: Decode<Request>, open: (call: StreamCall) => StreamHandler<Request>): void {
    this.#streams.set(path, open as AnyHandler);
    const never = (): never => {
      throw new Error(`${path} is handled by the interceptor`);
    };
    this.#server.register(path, never, identity, decoder(decode), 'bidi');
  }

  /** Serves a unary method. */
  addUnary<Request>(
    path: string,
    decode: Decode<Request>,
    handle: (request: Decoded<Request>, connectionId: string) => Promise<UnaryResult>,
  ): void {
    this.#server.register<Decoded<Request>, Buffer>(
      path,
      (call: { request: Decoded<Request>; getPeer(): string }, respond: UnaryRespond) => {
        handle(call.request, call.getPeer()).then(
          (result) => ('message' in result ? respond(null, result.message) : respond(result.error)),
          (error: unknown) => {
            this.#options.onFault(path, error);
            respond(internal);
          },
        );
      },
      identity,
      decoder(decode),
      'unary',
    );
  }

  /** Accepts connections on a Unix socket, until the listener is closed. Rejects as `listenUnix` does. */
  listen(options: Omit<ListenOptions, 'greeting'>): Promise<UnixListener> {
    return listenUnix(
      createServer((socket) => this.#accept(socket)),
      { ...options, greeting: HTTP2_GREETING },
    );
  }

  /** Open connections. */
  get connections(): number {
    return this.#sockets.size;
  }

  /**
   * Lets streams that have ended be delivered, for `graceMs` at the most, then cuts every connection. Listeners are to be
   * closed before.
   */
  async close(graceMs: number): Promise<void> {
    const closed = Promise.all([...this.#sockets].map((socket) => new Promise((done) => socket.once('close', done))));
    this.#injector.drain(graceMs);
    await closed;
    this.#injector.destroy();
    this.#server.forceShutdown();
  }

  #accept(socket: Socket): void {
    const { onRefused } = this.#options;
    let fault = this.#takeRoom();
    // Whoever has not begun yet makes room for whoever comes: a client begins at once.
    for (const silent of fault === undefined ? [] : this.#silent) {
      this.#forget(silent);
      silent.destroy();
      fault = this.#takeRoom();
      if (fault === undefined) break;
    }
    if (fault !== undefined) {
      socket.destroy();
      if (!this.#full) onRefused(fault);
      this.#full = true;
      return;
    }
    this.#full = false;
    // grpc-js reads the peer's name off the socket; a Unix socket has none, so it gets the connection's number.
    Object.defineProperty(socket, 'remoteAddress', { value: `c${++this.#accepted}`, configurable: true });
    this.#sockets.add(socket);
    socket.once('close', () => this.#forget(socket));
    this.#greet(socket);
  }

  /** Books a connection; returns why that cannot be, or undefined. */
  #takeRoom(): string | undefined {
    const { maxConnections, memory } = this.#options;
    if (this.#sockets.size >= maxConnections) return `${maxConnections} connections are open, and no more are taken`;
    return memory.take(SOCKET_BYTES) ? undefined : NO_MEMORY;
  }

  #forget(socket: Socket): void {
    const isSilent = this.#silent.delete(socket);
    if (!this.#sockets.delete(socket)) return;
    this.#options.memory.add(isSilent ? -SOCKET_BYTES : -SOCKET_BYTES - SESSION_BYTES);
  }

  /** Begins HTTP/2 when the client has; one that does not keeps a place from others only for a while. */
  #greet(socket: Socket): void {
    const { clock } = this.#options;
    this.#silent.add(socket);
    const timer = clock.at(clock.now() + GREETING_TIMEOUT_MS, () => socket.destroy());
    let received = Buffer.alloc(0);
    const onReadable = (): void => {
      const chunk: Buffer | null = socket.read();
      if (!chunk) return;
      received = Buffer.concat([received, chunk]);
      if (!HTTP2_PREFACE.subarray(0, received.length).equals(received.subarray(0, HTTP2_PREFACE.length))) {
        socket.destroy();
      } else if (received.length >= HTTP2_PREFACE.length) {
        if (!this.#options.memory.take(SESSION_BYTES)) {
          this.#options.onRefused(NO_MEMORY);
          socket.destroy();
          return;
        }
        timer.cancel();
        this.#silent.delete(socket);
        socket.removeListener('readable', onReadable);
        socket.unshift(received);
        this.#inject(socket);
      }
    };
    // The close that follows an error is all there is to know. Before and after its HTTP/2 session nobody else listens.
    socket.on('error', ignore);
    socket.on('readable', onReadable);
    socket.once('close', () => timer.cancel());
  }

  #inject(socket: Socket): void {
    this.#injected = socket;
    this.#injector.injectConnection(socket);
    this.#injected = undefined;
  }

  #intercept(
    method: ServerMethodDefinition<unknown, unknown>,
    call: ServerInterceptingCallInterface,
  ): ServerInterceptingCall {
    const open = this.#streams.get(method.path);
    return open
      ? new TakenOverCall(call, open, (error) => this.#options.onFault(method.path, error))
      : new ServerInterceptingCall(call);
  }
}

/**
 * Completes the one call of grpc-js to `http2.createServer`, which it makes while the injector is created: `onServer` gets the
 * server, and Node 24 counts no stream resets. Envoy ends a subscription by resetting its stream, and Node takes the
 * 1001st reset within a short time for an attack, and cuts the connection with every other stream on it.
 */
function withHttp2Server<T>(onServer: (server: http2.Http2Server) => void, create: () => T): T {
  const original = http2.createServer;
  const patched = (options: http2.ServerOptions): http2.Http2Server => {
    const more = { streamResetBurst: 100_000, streamResetRate: 10_000 };
    const server = original({ ...options, ...more } as http2.ServerOptions);
    onServer(server);
    return server;
  };
  Object.defineProperty(http2, 'createServer', { value: patched, configurable: true, writable: true });
  try {
    return create();
  } finally {
    Object.defineProperty(http2, 'createServer', { value: original, configurable: true, writable: true });
  }
}

type UnaryRespond = (error: EndStatus | null, message?: Buffer) => void;

const internal: EndStatus = { code: status.INTERNAL, details: 'internal error' };

const identity = (message: Buffer): Buffer => message;

/** grpc-js answers a request that cannot be decoded with INTERNAL; here the handler says what it is: INVALID_ARGUMENT. */
function decoder<T>(decode: Decode<T>): (bytes: Buffer) => Decoded<T> {
  return (bytes) => {
    try {
      return { ok: true, value: decode(bytes) };
    } catch (error) {
      return { ok: false, why: messageOf(error) };
    }
  };
}

/** A stream whose events go to our handler; the listener that grpc-js brings, with its Duplex, is never started. */
class TakenOverCall extends ServerInterceptingCall {
  readonly #call: ServerInterceptingCallInterface;
  readonly #open: AnyHandler;
  readonly #fault: (error: unknown) => void;

  constructor(call: ServerInterceptingCallInterface, open: AnyHandler, fault: (error: unknown) => void) {
    super(call);
    this.#call = call;
    this.#open = open;
    this.#fault = fault;
  }

  override start(): void {
    const call = this.#call;
    let handler: StreamHandler<unknown> | undefined;
    let ended = false;
    const end = (end: EndStatus): void => {
      if (ended) return;
      ended = true;
      call.sendStatus(end);
    };
    const guarded = (action: () => void): void => {
      try {
        action();
      } catch (error) {
        this.#fault(error);
        end(internal);
      }
    };
    call.start({
      onReceiveMetadata: () =>
        guarded(() => {
          handler = this.#open({
            connectionId: call.getPeer(),
            send: (message, written) => {
              if (!ended) call.sendMessage(message, () => guarded(written));
            },
            end,
          });
          call.startRead();
        }),
      onReceiveMessage: (message: unknown) =>
        guarded(() => {
          if (ended) return;
          // Every message has passed through `decoder`.
          handler?.message(message as Decoded<unknown>);
          if (!ended) call.startRead();
        }),
      onReceiveHalfClose: () => end({ code: status.OK, details: '' }),
      onCancel: () => {
        ended = true;
        guarded(() => handler?.closed());
      },
    });
  }
}
