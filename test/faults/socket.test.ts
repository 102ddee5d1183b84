import assert from 'node:assert/strict';
import { rename, stat, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { parseCertificates } from '../../src/pki/index.js';
import { credentialsFrom } from '../support/credentials.js';
import { createWorkplace, type Daemon, startDaemon } from '../support/daemon.js';
import { recordFault } from '../support/fault-report.js';
import { allUse, assertNothingRejected, assertUnharmed, envoysOf, startFlows } from '../support/flows.js';
import { normalSerial, serialOf } from '../support/handshakes.js';
import { startHop } from '../support/hop.js';
import { newestRelease, startLoneEnvoy } from '../support/lone-envoy.js';
import { IDENTITY } from '../support/manager.js';
import { startOwnServer } from '../support/own-sds-server.js';
import { together } from '../support/together.js';
import { until } from '../support/until.js';

const REQUESTS_PER_SECOND = 20;
const BACK_WITHIN_MS = 2_500;

const { binary, skip } = await newestRelease();

test('a socket that is deleted is there again, and connected Envoys notice nothing', { skip }, async () => {
  await using place = await createWorkplace();
  const { socket } = place;
  await using daemon = await startDaemon(place);
  await using sotw = await startHop({ binary, api: 'sotw', socket });
  await using delta = await startHop({ binary, api: 'delta', socket });
  const hops = [sotw, delta];
  await together(hops.map((hop) => hop.untilReady()));
  await using flows = startFlows(hops, REQUESTS_PER_SECOND);
  await flows.flowOn(5);
  const connected = await connectionsOf(daemon);

  await unlink(socket);
  const deleted = Date.now();
  await until('the socket is there again', async () => (await stat(socket)).isSocket());
  const recoveryMs = Date.now() - deleted;
  assert.ok(recoveryMs < BACK_WITHIN_MS, `it took ${recoveryMs} ms`);
  await using lateSotw = await startLoneEnvoy({ binary, api: 'sotw', socket }, 'late-sotw');
  await using lateDelta = await startLoneEnvoy({ binary, api: 'delta', socket }, 'late-delta');
  const late = [lateSotw, lateDelta];
  await together(late.map((envoy) => envoy.untilReady()));
  const { rotated } = await daemon.control.rotate();
  const next = normalSerial(rotated[0]?.serialNumber ?? '');
  await until('old and new Envoys get the next certificate', () => allUse([...envoysOf(hops), ...late], next));
  await flows.flowOn(5);
  const reports = await flows.stop();

  assertUnharmed(reports);
  await assertNothingRejected([...envoysOf(hops), ...late]);
  const still = await connectionsOf(daemon);
  for (const [node, connection] of connected) assert.equal(still.get(node), connection, `${node} was not cut off`);
  assert.match(daemon.log(), /the socket was deleted, and is there again/);
  recordFault(import.meta.url, {
    fault: 'The socket file is deleted',
    users: 'nothing; new Envoys connect again',
    reports,
    recoveryMs,
  });
});

test('a daemon whose socket another server takes ends with code 1 and leaves it alone', { skip }, async () => {
  await using place = await createWorkplace();
  const { socket } = place;
  await using daemon = await startDaemon(place);
  await using sotw = await startHop({ binary, api: 'sotw', socket });
  await using delta = await startHop({ binary, api: 'delta', socket });
  const hops = [sotw, delta];
  await together(hops.map((hop) => hop.untilReady()));
  await using flows = startFlows(hops, REQUESTS_PER_SECOND);
  await flows.flowOn(5);

  const elsewhere = join(place.directory, 'other.sock');
  await using other = await startOwnServer({ socket: elsewhere });
  const serial = await serveFor(daemon, other);
  await rename(elsewhere, socket);
  const taken = Date.now();
  const { ino } = await stat(socket);
  await until('the daemon has ended', () => !runs(daemon.pid));
  assert.deepEqual(await daemon.stop(), { code: 1, signal: null });
  assert.match(daemon.log(), /ERR_SDSD_SOCKET_IN_USE/);
  assert.equal((await stat(socket)).ino, ino, "the other server's socket is still there");
  await until('every Envoy has gone over to the other server', () => allUse(envoysOf(hops), serial));
  const recoveryMs = Date.now() - taken;
  await flows.flowOn(5);
  const reports = await flows.stop();

  assertUnharmed(reports);
  await assertNothingRejected(envoysOf(hops));
  const users = 'nothing: the daemon ends and says why, and Envoys go over to the other server';
  recordFault(import.meta.url, {
    fault: 'Another server, of the same CA, takes the socket',
    users,
    reports,
    recoveryMs,
  });
});

const RACES = [
  { shared: 'socket', own: ['--state-dir', '--control-socket'], code: 'ERR_SDSD_SOCKET_IN_USE' },
  { shared: 'state directory', own: ['--socket', '--control-socket'], code: 'ERR_SDSD_STATE_LOCKED' },
] as const;

for (const { shared, own, code } of RACES) {
  test(`of two daemons that start at once with one ${shared}, one serves and one says why not`, { skip }, async () => {
    await using place = await createWorkplace();
    const of = (name: string): string[] => own.flatMap((flag) => [flag, join(place.directory, `${name}${flag}`)]);
    const args = [of('a'), of('b')];
    const starts = await Promise.allSettled(args.map((each) => startDaemon(place, { args: each })));
    const [winner, ...second] = starts.flatMap((start) => (start.status === 'fulfilled' ? [start.value] : []));
    await using _daemons = { [Symbol.asyncDispose]: () => stopAll([winner, ...second]) };
    assert.ok(winner && second.length === 0, 'one of the two serves');
    const loser = starts.find((start) => start.status === 'rejected');
    assert.match(String(loser?.reason), /sdsd ended \(1\)/);
    assert.match(String(loser?.reason), new RegExp(code));

    const flags = args[starts.findIndex((start) => start.status === 'fulfilled')] ?? [];
    const at = flags.indexOf('--socket');
    const socket = at === -1 ? place.socket : (flags[at + 1] ?? '');
    await using sotw = await startHop({ binary, api: 'sotw', socket });
    await using delta = await startHop({ binary, api: 'delta', socket });
    const hops = [sotw, delta];
    await together(hops.map((hop) => hop.untilReady()));
    await using flows = startFlows(hops, REQUESTS_PER_SECOND);
    await flows.flowOn(10);
    const reports = await flows.stop();
    assertUnharmed(reports);
    await assertNothingRejected(envoysOf(hops));
    const users = `nothing: one serves, the other ends with ${code}`;
    recordFault(import.meta.url, { fault: `Two daemons start at once with one ${shared}`, users, reports });
  });
}

function runs(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

async function stopAll(daemons: readonly (Daemon | undefined)[]): Promise<void> {
  await Promise.all(daemons.map((daemon) => daemon?.stop()));
}

/** On which connection the daemon knows each Envoy. */
async function connectionsOf(daemon: Daemon): Promise<ReadonlyMap<string, string>> {
  const { subscribers } = await daemon.control.status();
  return new Map(subscribers.map(({ nodeId, connectionId }) => [nodeId, connectionId]));
}

/** Lets another server serve a certificate that the daemon's CA has signed; returns its serial number. */
async function serveFor(daemon: Daemon, { manager }: Awaited<ReturnType<typeof startOwnServer>>): Promise<string> {
  const { cert, key, ca } = await credentialsFrom(daemon, IDENTITY);
  const roots = parseCertificates(Buffer.from(ca));
  // Newer than all that the daemon has sent.
  const version = Date.now() * 1_000 + 60_000_000;
  const common = { version, source: 'test', notAfter: Number.MAX_SAFE_INTEGER };
  manager.set('ROOTCA', {
    kind: 'secret',
    secret: {
      ...{ ...common, kind: 'validation-context', name: 'ROOTCA' },
      ...{ trustedCa: Buffer.from(ca), fingerprints: roots.map(({ fingerprint }) => fingerprint) },
    },
  });
  manager.set('default', {
    kind: 'secret',
    secret: {
      ...{
        ...common,
        kind: 'tls-certificate',
        name: 'default',
        identity: IDENTITY,
        notBefore: 0,
        issuersNotAfter: Number.MAX_SAFE_INTEGER,
      },
      ...{ certificateChain: Buffer.from(cert), privateKey: Buffer.from(key), serialNumber: serialOf(cert) },
    },
  });
  return serialOf(cert);
}
