import assert from 'node:assert/strict';
import { test } from 'node:test';
import { systemClock } from '../../src/clock.js';
import { type CaFault, TestCa } from '../../src/testing/test-ca.js';
import { createWorkplace } from '../support/daemon.js';
import { type LocalDaemon, startDaemonInProcess } from '../support/daemon-in-process.js';
import { type Fault, recordFault } from '../support/fault-report.js';
import { allUse, assertNothingRejected, assertUnharmed, envoysOf, failuresOf, startFlows } from '../support/flows.js';
import { normalSerial } from '../support/handshakes.js';
import { startHop } from '../support/hop.js';
import { newestRelease, startLoneEnvoy } from '../support/lone-envoy.js';
import { SdsTestClient } from '../support/sds-client.js';
import { together } from '../support/together.js';
import { until } from '../support/until.js';

const REQUESTS_PER_SECOND = 20;
const RECOVERY_MS = 5_000;
const CA_TIMEOUT_MS = 500;
/** Renewed when 6 s are left, and tried again after 1, 2 and 3 s: a CA that comes back with 4 s left is in time. */
const ACROSS_A_RENEWAL = {
  SECRET_TTL: '12s',
  SECRET_GRACE_PERIOD_RATIO_JITTER: '0',
  SDSD_CA_TIMEOUT: `${CA_TIMEOUT_MS}ms`,
};
const GROUPS: readonly (readonly CaFault[])[] = [
  ['down', 'hang'],
  ['wrong-key', 'wrong-san', 'foreign-root', 'wrong-order'],
  ['expired', 'not-yet-valid', 'empty-chain', 'root-only'],
];
const SHOWN: Readonly<Record<CaFault, string>> = {
  down: 'The CA refuses to sign',
  hang: 'The CA takes requests and never answers',
  'wrong-key': "The CA certifies another's key",
  'wrong-san': 'The CA certifies another identity',
  expired: 'The CA issues an expired certificate',
  'not-yet-valid': 'The CA issues a certificate that is not yet valid',
  'empty-chain': 'The CA answers with no certificate',
  'root-only': 'The CA answers with its root in place of a chain',
  'wrong-order': 'The CA answers with the chain in the wrong order',
  'foreign-root': 'The CA issues under a root that it does not name',
};

const { binary, skip } = await newestRelease();
// Each Envoy is to end with this process.
process.setMaxListeners(50);

for (const group of GROUPS) {
  test(`a CA that fails across a renewal costs no request: ${group.join(', ')}`, { skip }, async () => {
    const perSecond = REQUESTS_PER_SECOND / group.length;
    const faults = await together(group.map((fault, index) => failAcrossRenewal(fault, perSecond, index % 2 === 0)));
    for (const fault of faults) recordFault(import.meta.url, fault);
  });
}

/** One hop in one variant of SDS, and an Envoy that comes during the outage in the other. */
async function failAcrossRenewal(fault: CaFault, perSecond: number, sotwFirst: boolean): Promise<Fault> {
  await using place = await createWorkplace();
  const ca = await TestCa.create(systemClock);
  await using daemon = await startDaemonInProcess(place, { ca, env: ACROSS_A_RENEWAL });
  const { socket } = place;
  await using hop = await startHop({ binary, socket, api: sotwFirst ? 'sotw' : 'delta' });
  await hop.untilReady();
  const present = await rotated(daemon);
  await using flows = startFlows([hop], perSecond);

  ca.fault = fault;
  await until('the renewal fails', () => daemon.workload().failures >= 1);
  await using late = await startLoneEnvoy({ binary, socket, api: sotwFirst ? 'delta' : 'sotw' });
  await late.untilReady();
  const envoys = [...envoysOf([hop]), late];
  assert.ok(await allUse(envoys, present), 'one that comes during the outage gets the present certificate');
  await until('the renewal is tried again', () => daemon.workload().failures >= 2);
  assert.equal(daemon.workload().state, 'available');
  assert.equal(daemon.control.status().ca.state, 'failing');

  ca.fault = undefined;
  const back = Date.now();
  const successor = await until('a new certificate', () => differentFrom(present, daemon));
  await until('every Envoy uses it', () => allUse(envoys, successor));
  const recoveryMs = Date.now() - back;
  assert.ok(recoveryMs < RECOVERY_MS + (fault === 'hang' ? CA_TIMEOUT_MS : 0), `recovery took ${recoveryMs} ms`);
  assert.equal(daemon.control.status().ca.state, 'ready');
  await until('it is used', () => flows.reports().every(({ serverSerials }) => serverSerials.has(successor)));
  const reports = await flows.stop();
  assertUnharmed(reports);
  await assertNothingRejected(envoys);
  const users = 'nothing: the present certificate is served, to new Envoys too';
  return { fault: `${SHOWN[fault]}, across a renewal`, users, reports, recoveryMs };
}

test('nobody is given a certificate that expired while the CA was down', { skip }, async () => {
  await using place = await createWorkplace();
  const ca = await TestCa.create(systemClock);
  await using daemon = await startDaemonInProcess(place, { ca, env: { SECRET_TTL: '5s' } });
  const { socket } = place;
  await using sotw = await startHop({ binary, api: 'sotw', socket });
  await using delta = await startHop({ binary, api: 'delta', socket });
  const hops = [sotw, delta];
  await together(hops.map((hop) => hop.untilReady()));
  await using flows = startFlows(hops, REQUESTS_PER_SECOND);
  const last = await rotated(daemon);
  ca.fault = 'down';
  const notAfter = Date.parse(daemon.workload().notAfter ?? '');

  // Less than a request takes: one that has begun while the certificate is valid ends while it is.
  await until('the certificate is about to expire', () => Date.now() > notAfter - 200);
  assertUnharmed(flows.reports());
  await until('the certificate has expired', () => daemon.workload().state === 'unavailable');
  await using lateSotw = await startLoneEnvoy({ binary, api: 'sotw', socket }, 'late-sotw');
  await using lateDelta = await startLoneEnvoy({ binary, api: 'delta', socket }, 'late-delta');
  await until('both have asked', () => askedInVain(daemon, ['late-sotw', 'late-delta']));
  assert.deepEqual(await messagesTo(socket), { sotw: 0, delta: 0 });
  for (const late of [lateSotw, lateDelta]) {
    assert.deepEqual((await late.certs()).leaves, []);
    assert.equal(await late.ready(), false);
  }
  const { ca: authority } = daemon.control.status();
  assert.deepEqual([authority.state, authority.lastError], ['failing', 'test CA is down']);
  await until('requests fail', () => failuresOf(flows.reports()) > 0);

  ca.fault = undefined;
  const back = Date.now();
  const successor = await until('a new certificate', () => differentFrom(last, daemon));
  await until('every Envoy uses it', () => allUse([...envoysOf(hops), lateSotw, lateDelta], successor));
  const recoveryMs = Date.now() - back;
  assert.ok(recoveryMs < RECOVERY_MS, `recovery took ${recoveryMs} ms`);
  await together([lateSotw.untilReady(), lateDelta.untilReady()]);
  await flows.flowOn(5);
  const failed = failuresOf(flows.reports());
  await flows.flowOn(10);
  const reports = await flows.stop();
  assert.equal(failuresOf(reports), failed, 'nothing fails after the recovery');
  const users = 'requests fail from the expiry on; no Envoy is given the expired certificate';
  recordFault(import.meta.url, {
    fault: 'The CA stays down until the certificate has expired',
    users,
    reports,
    recoveryMs,
  });
});

test('a CA that takes three seconds for each answer costs no request', { skip }, async () => {
  await using place = await createWorkplace();
  const ca = await TestCa.create(systemClock);
  ca.latency = 3_000;
  // Three seconds are lost on the way, and half of the rest is left when the next one is asked for.
  await using daemon = await startDaemonInProcess(place, { ca, env: { SECRET_TTL: '14s' } });
  await using sotw = await startHop({ binary, api: 'sotw', socket: place.socket });
  await using delta = await startHop({ binary, api: 'delta', socket: place.socket });
  const hops = [sotw, delta];
  await together(hops.map((hop) => hop.untilReady()));
  const first = normalSerial(daemon.workload().serialNumber ?? '');
  await using flows = startFlows(hops, REQUESTS_PER_SECOND);

  let present = first;
  for (let renewal = 1; renewal <= 2; renewal++) {
    const before = present;
    present = await until(`renewal ${renewal}`, () => differentFrom(before, daemon));
    await until('every Envoy uses it', () => allUse(envoysOf(hops), present));
    await flows.flowOn(5);
  }
  const reports = await flows.stop();
  assertUnharmed(reports);
  for (const { clientSerials, serverSerials } of reports) {
    for (const seen of [clientSerials, serverSerials])
      assert.ok(seen.has(first) && seen.has(present) && seen.size === 3);
  }
  await assertNothingRejected(envoysOf(hops));
  recordFault(import.meta.url, {
    fault: 'The CA takes 3 s for each answer',
    users: 'nothing: renewal starts early enough',
    reports,
  });
});

async function rotated(daemon: LocalDaemon): Promise<string> {
  const [first] = (await daemon.control.rotate()).rotated;
  return normalSerial(first?.serialNumber ?? '');
}

function differentFrom(serial: string, daemon: LocalDaemon): string | false {
  const present = normalSerial(daemon.workload().serialNumber ?? '');
  return present !== serial && present;
}

/** True once these Envoys have subscribed to a certificate, and were sent none. */
function askedInVain(daemon: LocalDaemon, nodes: readonly string[]): boolean {
  const { subscribers } = daemon.control.status();
  return nodes.every((node) =>
    subscribers.some(
      ({ nodeId, names }) =>
        nodeId === node && names.some(({ name, sentVersion }) => name === 'default' && sentVersion === null),
    ),
  );
}

/** How many messages new streams get that subscribe to the certificate. */
async function messagesTo(socket: string): Promise<{ readonly sotw: number; readonly delta: number }> {
  const client = new SdsTestClient(socket);
  try {
    const sotw = client.stream();
    const delta = client.delta();
    sotw.send({ resourceNames: ['default'] });
    delta.send({ resourceNamesSubscribe: ['default'] });
    await client.fence();
    return { sotw: sotw.waiting.length, delta: delta.waiting.length };
  } finally {
    client.close();
  }
}
