import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { Clock } from '../clock.js';
import { type ErrorCode, SdsdError } from '../errors.js';
import { type Logger, printableJson } from '../log.js';
import { keepListening, listenUnix } from '../sockets/index.js';
import type { ControlErrorBody, DaemonControl, IssueRequest } from './daemon-control.js';

/** No request body is longer. */
const MAX_BODY_BYTES = 64 * 1024;

/** Only the user that runs the daemon may give it commands. */
const SOCKET_MODE = 0o600;

const GREETING = Buffer.from('GET /status HTTP/1.1\r\nhost: sdsd\r\nconnection: close\r\n\r\n');

export interface ControlServerOptions {
  /** Absolute path of the socket. */
  readonly path: string;
  readonly daemon: DaemonControl;
  readonly clock: Clock;
  readonly log: Logger;
}

export interface ControlServer {
  /** Removes the socket and ends all connections. */
  close(): Promise<void>;
}

/**
 * Serves commands as JSON over HTTP on a Unix socket: GET /status and /roots, POST /rotate, /rotate-root and /issue. A
 * failure is answered with a {@link ControlErrorBody}. Throws ERR_SDSD_SOCKET or ERR_SDSD_SOCKET_IN_USE.
 */
export async function startControlServer(options: ControlServerOptions): Promise<ControlServer> {
  const { path, clock, log } = options;
  return keepListening({
    listen: async () => {
      const server = httpServer(options);
      const listener = await listenUnix(server, {
        path,
        mode: SOCKET_MODE,
        greeting: GREETING,
        setting: '--control-socket or SDSD_CONTROL_SOCKET',
        clock,
      });
      return {
        ...listener,
        async close() {
          await listener.close();
          // Who still waits for an answer learns that the daemon went away.
          server.closeAllConnections();
        },
      };
    },
    clock,
    onRestored: () => log.warn('the control socket was deleted, and is there again', { socket: path }),
    onLost: (error) => log.error('the control socket was deleted, and cannot be made again for now', { error }),
    onTaken: (error) =>
      log.error('the control socket was replaced by another server; commands go there now', { error }),
  });
}

function httpServer({ daemon, log }: ControlServerOptions): Server {
  // Node looks only every half minute for requests that take too long, unless it is told to look more often.
  const server = createServer({ connectionsCheckingInterval: 5_000 }, (request, response) => {
    answer(request, daemon)
      .catch((error: unknown) => failure(error, request, log))
      .then((reply) => send(request, response, reply))
      .catch((error: unknown) => log.warn('a control request could not be answered', { error }));
  });
  server.requestTimeout = 10_000;
  server.headersTimeout = 10_000;
  return server;
}

interface Reply {
  readonly status: number;
  readonly body: unknown;
  readonly headers?: Readonly<Record<string, string>>;
}

interface Route {
  readonly method: 'GET' | 'POST';
  readonly handle: (daemon: DaemonControl, body: Readonly<Record<string, unknown>>) => unknown;
}

const ROUTES = new Map<string, Route>([
  ['/status', { method: 'GET', handle: (daemon) => daemon.status() }],
  ['/roots', { method: 'GET', handle: (daemon) => daemon.roots() }],
  ['/rotate', { method: 'POST', handle: (daemon, body) => daemon.rotate(optionalString(body, 'name')) }],
  ['/rotate-root', { method: 'POST', handle: (daemon) => daemon.rotateRoot() }],
  ['/issue', { method: 'POST', handle: (daemon, body) => daemon.issue(issueRequest(body)) }],
]);

/** A request that is refused before the daemon hears of it. */
class Refused extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly headers: Readonly<Record<string, string>> = {},
  ) {
    super(message);
  }
}

async function answer(request: IncomingMessage, daemon: DaemonControl): Promise<Reply> {
  // A browser names the page that sends a request; none has business here, whatever forwarded it to this socket.
  if (request.headers.origin !== undefined || request.headers['sec-fetch-site'] !== undefined) {
    throw new Refused(403, 'requests from web pages are refused');
  }
  const path = request.url?.split('?')[0] ?? '/';
  const route = ROUTES.get(path);
  if (!route) throw new Refused(404, `there is no ${path}; there are ${[...ROUTES.keys()].join(', ')}`);
  if (request.method !== route.method) {
    throw new Refused(405, `${path} takes ${route.method} only`, { allow: route.method });
  }
  const body = route.method === 'POST' ? await readBody(request) : {};
  return { status: 200, body: await route.handle(daemon, body) };
}

async function readBody(request: IncomingMessage): Promise<Readonly<Record<string, unknown>>> {
  const type = request.headers['content-type']?.split(';')[0]?.trim().toLowerCase();
  if (type !== 'application/json') throw new Refused(415, 'the body must be application/json');
  const chunks: Buffer[] = [];
  let length = 0;
  // The connection must outlive a body that is too long, for the answer.
  for await (const chunk of request.iterator({ destroyOnReturn: false })) {
    if (!Buffer.isBuffer(chunk)) continue;
    length += chunk.length;
    if (length > MAX_BODY_BYTES) {
      throw new Refused(413, `the body is longer than ${MAX_BODY_BYTES} bytes`, { connection: 'close' });
    }
    chunks.push(chunk);
  }
  return parseObject(Buffer.concat(chunks).toString('utf8'));
}

function parseObject(text: string): Readonly<Record<string, unknown>> {
  let value: unknown;
  try {
    value = text === '' ? {} : JSON.parse(text);
  } catch {
    throw new Refused(400, 'the body is not JSON');
  }
  if (!isRecord(value)) throw new Refused(400, 'the body must be a JSON object');
  return value;
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function optionalString(body: Readonly<Record<string, unknown>>, key: string): string | undefined {
  const value = body[key];
  if (value === undefined || value === null) return undefined;
  if (typeof value !== 'string') throw new Refused(400, `"${key}" must be a string`);
  return value;
}

function requiredString(body: Readonly<Record<string, unknown>>, key: string): string {
  const value = optionalString(body, key);
  if (value === undefined || value === '') throw new Refused(400, `"${key}" is missing`);
  return value;
}

function issueRequest(body: Readonly<Record<string, unknown>>): IssueRequest {
  const requester = optionalString(body, 'requester');
  const foreignTrustDomain = body['foreignTrustDomain'] ?? false;
  if (typeof foreignTrustDomain !== 'boolean') throw new Refused(400, '"foreignTrustDomain" must be true or false');
  const request: IssueRequest = {
    identity: requiredString(body, 'identity'),
    csrPem: requiredString(body, 'csrPem'),
    foreignTrustDomain,
    ...(requester !== undefined && { requester }),
  };
  const ttlMs = body['ttlMs'];
  if (ttlMs === undefined || ttlMs === null) return request;
  if (typeof ttlMs !== 'number' || !Number.isSafeInteger(ttlMs) || ttlMs <= 0) {
    throw new Refused(400, '"ttlMs" must be a positive whole number of milliseconds');
  }
  return { ...request, ttlMs };
}

/** What the caller gets wrong, by code; every other failure is the daemon's. */
const STATUS_BY_CODE = new Map<ErrorCode, number>([
  ['ERR_SDSD_CONFIG', 400],
  ['ERR_SDSD_USAGE', 400],
  ['ERR_SDSD_SPIFFE_ID', 400],
  ['ERR_SDSD_RESOURCE_NAME', 404],
  ['ERR_SDSD_PEM', 400],
  ['ERR_SDSD_KEY', 400],
  ['ERR_SDSD_CSR', 400],
  ['ERR_SDSD_CONTROL', 409],
  ['ERR_SDSD_CA', 502],
  ['ERR_SDSD_TIMEOUT', 504],
]);

function failure(error: unknown, request: IncomingMessage, log: Logger): Reply {
  if (error instanceof Refused) {
    return reply(error.status, { code: 'ERR_SDSD_CONTROL', message: error.message }, error.headers);
  }
  if (error instanceof SdsdError) {
    const { code, message, hint } = error;
    return reply(STATUS_BY_CODE.get(code) ?? 500, hint === undefined ? { code, message } : { code, message, hint });
  }
  // Nobody wrote this message for others to read, so it goes to the log alone.
  log.error('a control request failed', { request: `${request.method} ${request.url}`, error });
  const message = 'the daemon met an error that it did not expect';
  return reply(500, { code: 'ERR_SDSD_CONTROL', message, hint: "see the daemon's log" });
}

function reply(status: number, error: ControlErrorBody['error'], headers: Reply['headers'] = {}): Reply {
  return { status, body: { error }, headers };
}

function send(request: IncomingMessage, response: ServerResponse, { status, body, headers }: Reply): void {
  const text = Buffer.from(`${printableJson(body)}\n`);
  const unread = !request.complete;
  response.writeHead(status, {
    'content-type': 'application/json',
    'content-length': text.length,
    'cache-control': 'no-store',
    ...(unread ? { connection: 'close' } : {}),
    ...headers,
  });
  response.end(text);
}
