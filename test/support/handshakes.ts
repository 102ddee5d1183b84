import { X509Certificate } from 'node:crypto';
import { Agent, request as httpRequest, type IncomingMessage } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { text } from 'node:stream/consumers';
import { TLSSocket } from 'node:tls';
import type { EnvoyBootstrap } from '../../src/cli/envoy-bootstrap.js';
import { withChange } from './json.js';

/** The leaf certificates that one request met, as far as it could see them: serial numbers in lower-case hexadecimal. */
export interface Met {
  readonly client?: string;
  readonly server?: string;
}

export interface FlowReport {
  readonly ok: number;
  readonly failed: number;
  /** How often each reason for a failure was seen. */
  readonly reasons: ReadonlyMap<string, number>;
  /** Serial numbers in the order in which they were first seen. */
  readonly clientSerials: ReadonlySet<string>;
  readonly serverSerials: ReadonlySet<string>;
}

/** New mTLS connections at a steady rate, one request on each, nothing tried twice. */
export interface Flow extends AsyncDisposable {
  report(): FlowReport;
  /** Starts no more, and resolves when the last one under way has its answer. */
  stop(): Promise<FlowReport>;
}

export interface FlowOptions {
  /** One request over a connection of its own; rejects for any answer but 200. */
  readonly attempt: (signal: AbortSignal) => Promise<Met>;
  readonly perSecond: number;
}

const ATTEMPT_TIMEOUT_MS = 5_000;
// A busy machine slows the flow down; it does not make a crowd.
const MOST_AT_ONCE = 30;

export function startFlow({ attempt, perSecond }: FlowOptions): Flow {
  const underWay = new Set<Promise<void>>();
  const reasons = new Map<string, number>();
  const clientSerials = new Set<string>();
  const serverSerials = new Set<string>();
  let [ok, failed] = [0, 0];

  const once = async (): Promise<void> => {
    try {
      const { client, server } = await attempt(AbortSignal.timeout(ATTEMPT_TIMEOUT_MS));
      ok += 1;
      if (client !== undefined) clientSerials.add(client);
      if (server !== undefined) serverSerials.add(server);
    } catch (error) {
      failed += 1;
      const reason = error instanceof Error ? error.message : String(error);
      reasons.set(reason, (reasons.get(reason) ?? 0) + 1);
    }
  };
  const timer = setInterval(() => {
    if (underWay.size >= MOST_AT_ONCE) return;
    const run = once().finally(() => underWay.delete(run));
    underWay.add(run);
  }, 1000 / perSecond);

  const report = (): FlowReport => ({ ok, failed, reasons, clientSerials, serverSerials });
  const stop = async (): Promise<FlowReport> => {
    clearInterval(timer);
    await Promise.all(underWay);
    return report();
  };
  return {
    report,
    stop,
    [Symbol.asyncDispose]: async () => {
      await stop();
    },
  };
}

/** Lets an Envoy tell, in headers of each answer, the certificates of the hop: `throughEgress` reads them. */
export function tellingSerials(bootstrap: EnvoyBootstrap): object {
  const headers: Readonly<Record<string, string>> = {
    server: '%DOWNSTREAM_PEER_SERIAL%',
    egress: '%UPSTREAM_PEER_CERT%',
  };
  return {
    ...bootstrap,
    static_resources: {
      ...bootstrap.static_resources,
      listeners: bootstrap.static_resources.listeners.map((listener) => {
        const name = String(listener['name']);
        const header = { key: `x-${name}-saw`, value: headers[name] ?? '' };
        const path = ['filter_chains', 0, 'filters', 0, 'typed_config', 'route_config'];
        return withChange(listener, path, (route) => ({ ...route, response_headers_to_add: [{ header }] }));
      }),
    },
  };
}

/** Plain HTTP to the egress listener of an Envoy that opens an mTLS connection for each request. */
export function throughEgress(port: number): FlowOptions['attempt'] {
  const agent = new Agent({ keepAlive: true });
  return async (signal) => {
    const request = httpRequest({ host: '127.0.0.1', port, agent, signal });
    const response = await answer(request);
    await expectOk(response);
    const { 'x-server-saw': client, 'x-egress-saw': server } = response.headers;
    return {
      ...(typeof client === 'string' ? { client: normalSerial(client) } : {}),
      ...(typeof server === 'string' ? { server: serialOf(decodeURIComponent(server)) } : {}),
    };
  };
}

export interface ClientCredentials {
  /** PEM, leaf first. */
  readonly cert: string;
  /** PEM. */
  readonly key: string;
  /** PEM. */
  readonly ca: string;
}

/** HTTPS from Node itself, each time with what `credentials` gives at that moment. The server must have the SPIFFE ID `server`. */
export function fromNode(
  port: number,
  server: string,
  credentials: () => Partial<ClientCredentials>,
): FlowOptions['attempt'] {
  return async (signal) => {
    const own = credentials();
    const request = httpsRequest({
      ...{ host: '127.0.0.1', port, signal, ...own },
      // No agent: neither connections nor TLS sessions are used again.
      agent: false,
      checkServerIdentity: (_, { subjectaltname }) =>
        subjectaltname?.split(', ').includes(`URI:${server}`)
          ? undefined
          : new Error(`not ${server}: ${subjectaltname}`),
    });
    const response = await answer(request);
    const peer = response.socket instanceof TLSSocket ? response.socket.getPeerX509Certificate() : undefined;
    await expectOk(response);
    return {
      ...(own.cert ? { client: serialOf(own.cert) } : {}),
      ...(peer ? { server: normalSerial(peer.serialNumber) } : {}),
    };
  };
}

function answer(request: ReturnType<typeof httpRequest>): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    request.once('response', resolve);
    request.once('error', reject);
    request.end();
  });
}

async function expectOk(response: IncomingMessage): Promise<void> {
  const body = await text(response);
  if (response.statusCode !== 200) throw new Error(`${response.statusCode} ${body.trim()}`);
}

/** The serial number of the first certificate in PEM data, as `Met` has it. */
export function serialOf(pem: string): string {
  return normalSerial(new X509Certificate(pem).serialNumber);
}

/** Without case and leading zeros, in which Envoy, Node and OpenSSL differ. */
export function normalSerial(serial: string): string {
  return serial.toLowerCase().replace(/^0+(?=.)/, '');
}
