import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { createWorkplace, type Daemon, startDaemon } from '../support/daemon.js';
import type { Envoy } from '../support/envoy.js';
import { recordFault } from '../support/fault-report.js';
import { allUse, assertNothingRejected, assertUnharmed, envoysOf, failuresOf, startFlows } from '../support/flows.js';
import { type FlowReport, normalSerial } from '../support/handshakes.js';
import { startHop } from '../support/hop.js';
import { newestRelease } from '../support/lone-envoy.js';
import { startOwnServer } from '../support/own-sds-server.js';
import { createIssuer } from '../support/real-secrets.js';
import { SdsTestClient } from '../support/sds-client.js';
import { temporaryDirectory } from '../support/temp.js';
import { together } from '../support/together.js';
import { until } from '../support/until.js';

const REQUESTS_PER_SECOND = 20;
const CHANGES = 10;
const CHANGE_EVERY_MS = 500;
/** How long the certificate is ahead of the roots that it needs. */
const AHEAD_MS = 700;
const ACK_TIMEOUT_MS = 2_000;

const { binary, skip } = await newestRelease();

test(`${CHANGES} root changes in a row cost no request`, { skip }, async () => {
  await using place = await createWorkplace();
  await using daemon = await startDaemon(place);
  await using sotw = await startHop({ binary, api: 'sotw', socket: place.socket });
  await using delta = await startHop({ binary, api: 'delta', socket: place.socket });
  const hops = [sotw, delta];
  await together(hops.map((hop) => hop.untilReady()));
  await using flows = startFlows(hops, REQUESTS_PER_SECOND);
  await flows.flowOn(5);

  const roots = new Set<string>();
  let last = Date.now();
  for (let change = 0; change < CHANGES; change++) {
    // The pace of the test: the next one does not wait until the one before has reached every Envoy.
    if (change > 0) await sleep(CHANGE_EVERY_MS);
    last = Date.now();
    roots.add((await daemon.control.rotateRoot()).fingerprint);
  }
  await until('every Envoy uses the last certificate', async () => allUse(envoysOf(hops), await presentOf(daemon)));
  const recoveryMs = Date.now() - last;
  await flows.flowOn(10);
  const reports = await flows.stop();

  assert.equal(roots.size, CHANGES);
  assertUnharmed(reports, 30);
  for (const { clientSerials, serverSerials } of reports) {
    for (const seen of [clientSerials, serverSerials]) assert.ok(seen.size > CHANGES / 2, `${seen.size} certificates`);
  }
  for (const envoy of envoysOf(hops)) assert.equal((await envoy.certs()).roots.length, CHANGES + 1);
  await assertNothingRejected(envoysOf(hops));
  const users = 'nothing: every Envoy gets each root, and then the certificate under it';
  recordFault(import.meta.url, { fault: `${CHANGES} changes of the root in a row`, users, reports, recoveryMs });
});

test('a certificate that is ahead of its root waits, and fails requests if it does not', { skip }, async () => {
  const gated = await certificateBeforeRoots(10_000);
  assertUnharmed(gated);
  const users = 'nothing: the certificate is held back until the root is acknowledged';
  recordFault(import.meta.url, { fault: 'A certificate is there before its root', users, reports: gated });

  const hasty = await certificateBeforeRoots(0);
  assert.ok(failuresOf(hasty) > 0, 'requests fail');
  recordFault(import.meta.url, {
    fault: 'The same with SDSD_ROOT_ACK_TIMEOUT=0s, for comparison',
    users: 'peers refuse the certificate until they have the root',
    reports: hasty,
  });
});

/** The certificate comes first, and names the roots that it needs; they come later. */
async function certificateBeforeRoots(ackTimeoutMs: number): Promise<readonly FlowReport[]> {
  await using directory = await temporaryDirectory();
  const socket = join(directory.path, 'socket');
  await using server = await startOwnServer({ socket, ackTimeoutMs });
  const issuer = await createIssuer();
  server.manager.set('ROOTCA', { kind: 'secret', secret: issuer.roots() });
  server.manager.set('default', { kind: 'secret', secret: await issuer.certificate() });
  await using sotw = await startHop({ binary, api: 'sotw', socket });
  await using delta = await startHop({ binary, api: 'delta', socket });
  const hops = [sotw, delta];
  await together(hops.map((hop) => hop.untilReady()));
  await until('everything is acknowledged', () => allAcknowledged(server.sds.streams()));
  await using flows = startFlows(hops, REQUESTS_PER_SECOND);
  await flows.flowOn(5);

  await issuer.newRoot();
  const roots = issuer.roots();
  const secret = await issuer.certificate({ name: roots.name, version: roots.version });
  server.manager.set('default', { kind: 'secret', secret });
  // The fault itself: for so long the roots are late.
  await sleep(AHEAD_MS);
  server.manager.set('ROOTCA', { kind: 'secret', secret: roots });
  const serial = normalSerial(secret.serialNumber);
  await until('every Envoy has both', async () => {
    return (await allUse(envoysOf(hops), serial)) && (await allTrust(envoysOf(hops), roots.fingerprints.length));
  });
  await flows.flowOn(5);
  const reports = await flows.stop();
  await assertNothingRejected(envoysOf(hops));
  return reports;
}

test('a client that never acknowledges delays a root change by the set time, and no more', { skip }, async () => {
  await using place = await createWorkplace();
  await using daemon = await startDaemon(place, { env: { SDSD_ROOT_ACK_TIMEOUT: `${ACK_TIMEOUT_MS}ms` } });
  await using sotw = await startHop({ binary, api: 'sotw', socket: place.socket });
  await using delta = await startHop({ binary, api: 'delta', socket: place.socket });
  const hops = [sotw, delta];
  await together(hops.map((hop) => hop.untilReady()));
  const client = new SdsTestClient(place.socket);
  await using _client = { [Symbol.asyncDispose]: async () => client.close() };
  const stubborn = client.stream();
  stubborn.send({ resourceNames: ['ROOTCA'] });
  await stubborn.next();
  await using flows = startFlows(hops, REQUESTS_PER_SECOND);
  await flows.flowOn(5);
  const before = await presentOf(daemon);

  const asked = Date.now();
  await daemon.control.rotateRoot();
  const after = await presentOf(daemon);
  assert.notEqual(after, before);
  await until('every Envoy trusts the new root', () => allTrust(envoysOf(hops), 2));
  assert.ok(await allUse(envoysOf(hops), before), 'and still uses the certificate under the old one');
  await until('every Envoy uses the new certificate', () => allUse(envoysOf(hops), after));
  const recoveryMs = Date.now() - asked;
  assert.ok(recoveryMs >= ACK_TIMEOUT_MS && recoveryMs < ACK_TIMEOUT_MS + 2_000, `it took ${recoveryMs} ms`);
  await flows.flowOn(5);
  const reports = await flows.stop();
  assertUnharmed(reports);
  assert.match(daemon.log(), /clients did not accept new trust anchors in time/);
  await assertNothingRejected(envoysOf(hops));
  const users = 'nothing: the new certificate comes after SDSD_ROOT_ACK_TIMEOUT';
  recordFault(import.meta.url, {
    ...{ fault: `A client never acknowledges a new root (SDSD_ROOT_ACK_TIMEOUT=${ACK_TIMEOUT_MS / 1000}s)`, users },
    ...{ reports, recoveryMs },
  });
});

async function presentOf(daemon: Daemon): Promise<string> {
  const { secrets } = await daemon.control.status();
  return normalSerial(secrets.find(({ name }) => name === 'default')?.serialNumber ?? '');
}

async function allTrust(envoys: readonly Envoy[], roots: number): Promise<boolean> {
  const all = await Promise.all(envoys.map((envoy) => envoy.certs()));
  return all.every((certs) => certs.roots.length === roots);
}

function allAcknowledged(
  streams: readonly { readonly names: readonly { readonly sentVersion?: number; readonly ackedVersion?: number }[] }[],
): boolean {
  const names = streams.flatMap((stream) => stream.names);
  return names.length > 0 && names.every(({ sentVersion, ackedVersion }) => sentVersion === ackedVersion);
}
