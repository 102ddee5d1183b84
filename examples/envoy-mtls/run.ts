// Two Envoys talk mTLS with certificates from sdsd that live for a few seconds only, and no request fails. A third
// workload, whose certificate comes from the same CA, is refused by its SPIFFE ID. See README.md.

import { mkdtemp, rm } from 'node:fs/promises';
import { Agent, createServer, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { envoyBinary, newestEnvoy } from '../../scripts/fetch-envoy.mjs';
import { type EnvoyBootstrap, envoyBootstrap } from '../../src/cli/envoy-bootstrap.js';
import { parseDuration } from '../../src/config/index.js';
import { type Envoy, startEnvoy, startSdsd } from './processes.js';

const TRUST_DOMAIN = 'demo.example';
const SERVER = `spiffe://${TRUST_DOMAIN}/ns/shop/sa/server`;
const CLIENT = `spiffe://${TRUST_DOMAIN}/ns/shop/sa/client`;
const INTRUDER = `spiffe://${TRUST_DOMAIN}/ns/shop/sa/intruder`;
const ANY_PORT = { host: '127.0.0.1', port: 0 };

const USAGE = `Usage: npx tsx examples/envoy-mtls/run.ts [options]

  --seconds <number>  how long requests are sent (default: 20)
  --rate <number>     requests a second (default: 20)
  --ttl <duration>    lifetime of the certificates, from 2s (default: 4s)
  --envoy <version>   version of Envoy (default: ${newestEnvoy})
  --help              show this help
`;

const { values, seconds, rate } = options();

const end = new AbortController();
let interrupted = false;
for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.on(signal, () => {
    interrupted = true;
    end.abort();
  });
}

const directory = await mkdtemp(join(tmpdir(), 'sdsd-example-'));
try {
  process.exitCode = await main();
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = 1;
} finally {
  await rm(directory, { recursive: true, force: true });
}

/** What the command line says; ends the program when that is wrong. */
function options() {
  try {
    const { values } = parseArgs({
      options: {
        seconds: { type: 'string', default: '20' },
        ttl: { type: 'string', default: '4s' },
        rate: { type: 'string', default: '20' },
        envoy: { type: 'string', default: newestEnvoy },
        help: { type: 'boolean', default: false },
      },
    });
    if (values.help) {
      console.log(USAGE);
      process.exit(0);
    }
    if (parseDuration(values.ttl) < 2_000) throw new Error(`--ttl ${values.ttl} is shorter than 2s`);
    return { values, seconds: positive('--seconds', values.seconds), rate: positive('--rate', values.rate) };
  } catch (error) {
    console.error(`${error instanceof Error ? error.message : error}\n\n${USAGE}`);
    process.exit(2);
  }
}

function positive(option: string, text: string): number {
  const value = Number(text);
  if (value > 0 && value < Number.POSITIVE_INFINITY) return value;
  throw new Error(`${option} ${text} is not a number above 0`);
}

async function main(): Promise<number> {
  const { path: binary, reason } = await envoyBinary(values.envoy);
  if (binary === undefined) throw new Error(reason);

  console.log(`sdsd signs certificates that live for ${values.ttl}, and renews each at half its life`);
  const identities = [`server=${SERVER}`, `client=${CLIENT}`, `intruder=${INTRUDER}`];
  await using sdsd = await startSdsd(
    directory,
    identities.flatMap((identity) => ['--identity', identity]),
    {
      SECRET_TTL: values.ttl,
      TRUST_DOMAIN,
    },
  );
  const { socket } = sdsd;
  await using backend = await startBackend();

  const served = envoyBootstrap({
    ...{ socket, role: 'server', adminPort: 0, listen: ANY_PORT, backend: { host: '127.0.0.1', port: backend.port } },
    ...{ nodeId: 'server', certificateName: 'server', peer: { exact: CLIENT } },
  });
  await using server = await startEnvoy(binary, 'server', directory, served);
  const upstream = { host: '127.0.0.1', port: await server.port('server') };

  const callingAs = (name: string): EnvoyBootstrap =>
    envoyBootstrap({
      ...{ socket, role: 'client', adminPort: 0, egress: ANY_PORT, upstream, connectionPerRequest: true },
      ...{ nodeId: 'client', certificateName: name, peer: { exact: SERVER } },
    });
  await using client = await startEnvoy(
    binary,
    'client',
    directory,
    together(callingAs('client'), callingAs('intruder')),
  );

  console.log(`${rate} requests a second for ${seconds} s, each over an mTLS connection of its own:`);
  const calls = newCount();
  const intrusions = newCount();
  const over = setTimeout(() => end.abort(), seconds * 1000);
  const [, , certificates] = await Promise.all([
    repeat(rate, end.signal, caller(await client.port('egress'), calls)),
    repeat(2, end.signal, caller(await client.port('intruder-egress'), intrusions)),
    watchCertificates({ client, server }, end.signal),
  ]);
  clearTimeout(over);
  if (interrupted) return 130;
  const refusals = await statOf(server, 'ssl.fail_verify_san');
  return report(calls, intrusions, certificates, refusals);
}

// ---- The backend, which knows nothing of TLS

async function startBackend(): Promise<AsyncDisposable & { readonly port: number }> {
  const backend = createServer((incoming, response) => {
    // Envoy says who calls.
    response.end(/URI=([^;]+)/.exec(String(incoming.headers['x-forwarded-client-cert']))?.[1]);
  });
  await new Promise<void>((resolve) => backend.listen(0, '127.0.0.1', resolve));
  return {
    port: (backend.address() as AddressInfo).port,
    [Symbol.asyncDispose]: async () => {
      backend.closeAllConnections();
      await new Promise((resolve) => backend.close(resolve));
    },
  };
}

/** One Envoy that can call with two certificates: from the listener `egress`, and from `intruder-egress`. */
function together(main: EnvoyBootstrap, intruder: EnvoyBootstrap): object {
  const { listeners, clusters } = main.static_resources;
  const renamed: EnvoyBootstrap = JSON.parse(
    JSON.stringify(intruder)
      .replaceAll('"egress"', '"intruder-egress"')
      .replaceAll('"upstream-mtls"', '"intruder-mtls"'),
  );
  const [, ...more] = renamed.static_resources.clusters;
  return {
    ...main,
    static_resources: {
      listeners: [...listeners, ...renamed.static_resources.listeners],
      clusters: [...clusters, ...more],
    },
  };
}

// ---- Requests

interface Count {
  ok: number;
  readonly failures: Map<string, number>;
}

function newCount(): Count {
  return { ok: 0, failures: new Map() };
}

/** Starts `call` so many times a second until the signal; resolves when the last one has ended. */
async function repeat(perSecond: number, until: AbortSignal, call: () => Promise<void>): Promise<void> {
  const underWay: Promise<void>[] = [];
  while (!until.aborted) {
    underWay.push(call());
    await sleep(1000 / perSecond, undefined, { signal: until }).catch(() => undefined);
  }
  await Promise.all(underWay);
}

function caller(port: number, count: Count): () => Promise<void> {
  const agent = new Agent({ keepAlive: true });
  return async () => {
    const failure = await call(port, agent).catch((error: unknown) => String(error));
    if (failure === undefined) count.ok += 1;
    else count.failures.set(failure, (count.failures.get(failure) ?? 0) + 1);
  };
}

/** Resolves to undefined if the backend answered, and knew who called. */
function call(port: number, agent: Agent): Promise<string | undefined> {
  return new Promise((resolve, reject) => {
    const outgoing = request({ host: '127.0.0.1', port, agent, timeout: 5_000 }, async (response) => {
      const body = await text(response).catch(String);
      resolve(response.statusCode === 200 && body === CLIENT ? undefined : `${response.statusCode} ${body}`);
    });
    outgoing.once('timeout', () => outgoing.destroy(new Error('no answer within 5 s')));
    outgoing.once('error', reject);
    outgoing.end();
  });
}

// ---- What Envoy says

type Certificates = ReadonlyMap<string, ReadonlySet<string>>;

/** Tells each new certificate when it is seen; resolves to the serial numbers that each workload used. */
async function watchCertificates(envoys: Record<string, Envoy>, until: AbortSignal): Promise<Certificates> {
  const seen = new Map<string, Set<string>>();
  const start = Date.now();
  const look = async (): Promise<void> => {
    for (const envoy of Object.values(envoys)) {
      for (const [identity, serial] of await leavesOf(envoy)) {
        const serials = seen.get(identity) ?? new Set();
        seen.set(identity, serials);
        if (serials.has(serial)) continue;
        serials.add(serial);
        const second = ((Date.now() - start) / 1000).toFixed(1).padStart(5);
        console.log(`${second} s  ${nameOf(identity).padEnd(8)} certificate ${serials.size}: ${serial}`);
      }
    }
  };
  while (!until.aborted) {
    await look();
    await sleep(200, undefined, { signal: until }).catch(() => undefined);
  }
  return seen;
}

async function leavesOf(envoy: Envoy): Promise<readonly (readonly [identity: string, serial: string])[]> {
  const { certificates } = (await envoy.admin('/certs')) as {
    certificates?: { cert_chain?: { serial_number: string; subject_alt_names?: { uri?: string }[] }[] }[];
  };
  return (certificates ?? []).flatMap(({ cert_chain: [leaf] = [] }) =>
    leaf ? [[leaf.subject_alt_names?.[0]?.uri ?? '', leaf.serial_number] as const] : [],
  );
}

async function statOf(envoy: Envoy, suffix: string): Promise<number> {
  const { stats } = (await envoy.admin(`/stats?format=json&filter=${suffix}$`)) as { stats?: { value?: number }[] };
  return (stats ?? []).reduce((sum, { value = 0 }) => sum + value, 0);
}

function nameOf(identity: string): string {
  return identity.slice(identity.lastIndexOf('/') + 1);
}

// ---- The end

function report(calls: Count, intrusions: Count, certificates: Certificates, refusals: number): number {
  const used = (identity: string): number => certificates.get(identity)?.size ?? 0;
  const row = (name: string, { ok, failures }: Count, identity: string) => {
    const failed = [...failures.values()].reduce((sum, count) => sum + count, 0);
    return [name, { answered: ok, refused: failed, certificates: used(identity) }] as const;
  };
  console.table(Object.fromEntries([row('client', calls, CLIENT), row('intruder', intrusions, INTRUDER)]));
  console.log(
    `The server used ${used(SERVER)} certificates, and refused ${refusals} handshakes for the SPIFFE ID of the caller.`,
  );

  const faults = [
    ...[...calls.failures].map(([reason, count]) => `${count} requests of the client failed: ${reason}`),
    ...(calls.ok === 0 ? ['no request of the client was answered'] : []),
    ...(intrusions.ok > 0 ? [`${intrusions.ok} requests of the intruder were answered`] : []),
    ...(refusals === 0 ? ['the server refused nobody for a SPIFFE ID'] : []),
    ...(used(CLIENT) < 2 || used(SERVER) < 2 ? ['the certificates did not change: let it run for longer'] : []),
  ];
  for (const fault of faults) console.log(`FAULT: ${fault}`);
  if (faults.length === 0) console.log('Every request of the client was answered, and none of the intruder.');
  return faults.length === 0 ? 0 : 1;
}
