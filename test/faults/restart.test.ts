import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { systemClock } from '../../src/clock.js';
import { TestCa } from '../../src/testing/test-ca.js';
import { createWorkplace, type Daemon, startDaemon } from '../support/daemon.js';
import { startDaemonInProcess } from '../support/daemon-in-process.js';
import { recordFault } from '../support/fault-report.js';
import { allUse, assertNothingRejected, assertUnharmed, envoysOf, startFlows } from '../support/flows.js';
import { normalSerial } from '../support/handshakes.js';
import { startHop } from '../support/hop.js';
import { newestRelease, startLoneEnvoy } from '../support/lone-envoy.js';
import { together } from '../support/together.js';
import { until } from '../support/until.js';

const REQUESTS_PER_SECOND = 20;
const RECOVERY_MS = 5_000;

const { binary, skip } = await newestRelease();

const ENDS = [
  { signal: 'SIGKILL', end: (daemon: Daemon) => daemon.kill(), exit: { code: null, signal: 'SIGKILL' } },
  { signal: 'SIGTERM', end: (daemon: Daemon) => daemon.stop(), exit: { code: 0, signal: null } },
] as const;

for (const { signal, end, exit } of ENDS) {
  test(`a daemon that ends by ${signal} and is started again costs no request`, { skip }, async () => {
    await using place = await createWorkplace();
    await using first = await startDaemon(place);
    await using sotw = await startHop({ binary, api: 'sotw', socket: place.socket });
    await using delta = await startHop({ binary, api: 'delta', socket: place.socket });
    const hops = [sotw, delta];
    await together(hops.map((hop) => hop.untilReady()));
    await using flows = startFlows(hops, REQUESTS_PER_SECOND);
    await flows.flowOn(5);
    const before = await presentOf(first);

    assert.deepEqual(await end(first), exit);
    await flows.flowOn(10);
    const restarted = Date.now();
    await using second = await startDaemon(place);
    const present = await presentOf(second);
    assert.notEqual(present, before);
    await until('every Envoy has come back', () => allUse(envoysOf(hops), present));
    const recoveryMs = Date.now() - restarted;
    assert.ok(recoveryMs < RECOVERY_MS, `recovery took ${recoveryMs} ms`);
    const { rotated } = await second.control.rotate();
    const next = normalSerial(rotated[0]?.serialNumber ?? '');
    await until('rotation goes on', () => allUse(envoysOf(hops), next));
    await flows.flowOn(5);
    const reports = await flows.stop();

    assertUnharmed(reports, 20);
    for (const { clientSerials, serverSerials } of reports) {
      for (const seen of [clientSerials, serverSerials]) assert.ok(seen.has(before) && seen.has(next));
    }
    await assertNothingRejected(envoysOf(hops));
    const users = 'nothing: Envoy keeps what it has, and finds the daemon again';
    recordFault(import.meta.url, { fault: `${signal} of the daemon, and a restart`, users, reports, recoveryMs });
  });
}

test('a restart while the CA is down serves what was kept encrypted', { skip }, async () => {
  await using place = await createWorkplace();
  const { socket } = place;
  const keyFile = join(place.directory, 'state.key');
  await writeFile(keyFile, randomBytes(32).toString('base64'), { mode: 0o600 });
  const env = { SDSD_STATE_KEY_FILE: keyFile };
  const ca = await TestCa.create(systemClock);
  await using first = await startDaemonInProcess(place, { ca, env });
  await using sotw = await startHop({ binary, api: 'sotw', socket });
  await using delta = await startHop({ binary, api: 'delta', socket });
  const hops = [sotw, delta];
  await together(hops.map((hop) => hop.untilReady()));
  await using flows = startFlows(hops, REQUESTS_PER_SECOND);
  await flows.flowOn(5);
  const kept = normalSerial(first.workload().serialNumber ?? '');

  await first.close();
  ca.fault = 'down';
  const asked = ca.calls.length;
  const restarted = Date.now();
  await using second = await startDaemonInProcess(place, { ca, env });
  await until('the stored certificate is served', () => second.workload().state === 'available', RECOVERY_MS);
  await using lateSotw = await startLoneEnvoy({ binary, api: 'sotw', socket }, 'late-sotw');
  await using lateDelta = await startLoneEnvoy({ binary, api: 'delta', socket }, 'late-delta');
  const late = [lateSotw, lateDelta];
  await together(late.map((envoy) => envoy.untilReady()));
  const recoveryMs = Date.now() - restarted;
  assert.ok(await allUse([...late, ...envoysOf(hops)], kept));
  assert.equal(ca.calls.length, asked, 'the CA was not asked');
  await until('the Envoys of before are back', () => second.control.status().subscribers.length === 12);
  await flows.flowOn(5);
  const reports = await flows.stop();
  assertUnharmed(reports);
  await assertNothingRejected([...late, ...envoysOf(hops)]);
  const users = 'nothing: the stored certificate is served at once, to new Envoys too';
  recordFault(import.meta.url, {
    fault: 'A restart while the CA is down, with SDSD_STATE_KEY_FILE',
    users,
    reports,
    recoveryMs,
  });
});

test('a restart while the CA is down has nothing for new Envoys if nothing was kept', { skip }, async () => {
  await using place = await createWorkplace();
  const { socket } = place;
  const ca = await TestCa.create(systemClock);
  await using first = await startDaemonInProcess(place, { ca });
  await using sotw = await startHop({ binary, api: 'sotw', socket });
  await using delta = await startHop({ binary, api: 'delta', socket });
  const hops = [sotw, delta];
  await together(hops.map((hop) => hop.untilReady()));
  await using flows = startFlows(hops, REQUESTS_PER_SECOND);
  const before = normalSerial(first.workload().serialNumber ?? '');

  await first.close();
  ca.fault = 'down';
  await using second = await startDaemonInProcess(place, { ca });
  await using late = await startLoneEnvoy({ binary, api: 'delta', socket });
  await until('all Envoys are here', () => second.control.status().subscribers.length === 10);
  await until('the CA was asked in vain', () => second.workload().failures >= 2);
  assert.equal(second.workload().state, 'initializing');
  assert.deepEqual((await late.certs()).leaves, []);
  assert.equal(await late.ready(), false);
  assert.ok(await allUse(envoysOf(hops), before), 'those of before keep what they have');

  ca.fault = undefined;
  const back = Date.now();
  await late.untilReady();
  const present = normalSerial(second.workload().serialNumber ?? '');
  await until('every Envoy has the new certificate', () => allUse([late, ...envoysOf(hops)], present));
  const recoveryMs = Date.now() - back;
  assert.ok(recoveryMs < RECOVERY_MS, `recovery took ${recoveryMs} ms`);
  await flows.flowOn(5);
  const reports = await flows.stop();
  assertUnharmed(reports);
  const users = 'Envoys that ran before go on; a new one waits for the CA';
  recordFault(import.meta.url, {
    fault: 'A restart while the CA is down, without SDSD_STATE_KEY_FILE',
    users,
    reports,
    recoveryMs,
  });
});

async function presentOf(daemon: Daemon): Promise<string> {
  const { secrets } = await daemon.control.status();
  return normalSerial(secrets.find(({ name }) => name === 'default')?.serialNumber ?? '');
}
