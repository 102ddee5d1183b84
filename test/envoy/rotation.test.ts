import assert from 'node:assert/strict';
import { X509Certificate } from 'node:crypto';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { connect } from 'node:tls';
import { credentialsFrom } from '../support/credentials.js';
import { createWorkplace, type Daemon, startDaemon } from '../support/daemon.js';
import { type Envoy, envoyReleases } from '../support/envoy.js';
import { type FlowReport, fromNode, normalSerial, startFlow } from '../support/handshakes.js';
import { type Hop, startHop } from '../support/hop.js';
import { until } from '../support/until.js';

const IDENTITY = 'spiffe://cluster.local/ns/default/sa/default';
const ROTATIONS = 50;
const ROTATE_EVERY_MS = 500;
const REQUESTS_PER_SECOND = 20;

const { releases, skip } = await envoyReleases();
test('Envoy binaries to test with', { skip }, () => assert.notEqual(releases.length, 0));

for (const { version, binary } of releases) {
  test(`${ROTATIONS} rotations cost Envoy ${version} no request, with SotW and with delta SDS`, async () => {
    await using place = await createWorkplace();
    await using daemon = await startDaemon(place);
    await using sotw = await startHop({ binary, api: 'sotw', socket: place.socket });
    await using delta = await startHop({ binary, api: 'delta', socket: place.socket });
    const hops = [sotw, delta];
    await Promise.all(hops.map((hop) => hop.untilReady()));

    await using flows = startFlows(hops);
    const serials: string[] = [];
    for (let rotation = 0; rotation < ROTATIONS; rotation++) {
      // The pace of the test, not a wait for anything.
      const pace = sleep(ROTATE_EVERY_MS);
      const { rotated } = await daemon.control.rotate();
      serials.push(...rotated.map(({ serialNumber }) => normalSerial(serialNumber)));
      await pace;
    }
    const reports = await flows.stop();

    assert.equal(new Set(serials).size, ROTATIONS);
    for (const report of reports) {
      assertUnharmed(report, (ROTATIONS * ROTATE_EVERY_MS * REQUESTS_PER_SECOND) / 1000);
      for (const seen of [report.clientSerials, report.serverSerials]) {
        const rotated = serials.filter((serial) => seen.has(serial));
        assert.ok(rotated.length > ROTATIONS * 0.8, `only ${rotated.length} of ${ROTATIONS} certificates were used`);
        assert.equal([...seen].at(-1), serials.at(-1));
      }
    }
    await assertNothingRejected(hops);
  });

  test(`a new root costs Envoy ${version} no request, with SotW and with delta SDS`, async () => {
    await using place = await createWorkplace();
    await using daemon = await startDaemon(place);
    await using sotw = await startHop({ binary, api: 'sotw', socket: place.socket });
    await using delta = await startHop({ binary, api: 'delta', socket: place.socket });
    const hops = [sotw, delta];
    await Promise.all(hops.map((hop) => hop.untilReady()));
    const oldRoot = await onlyRoot(daemon);
    const underOldRoot = await credentialsFrom(daemon, IDENTITY);

    await using flows = startFlows(hops);
    await until('requests flow', () => flows.reports().every(({ ok }) => ok > 10));
    const { fingerprint } = await daemon.control.rotateRoot();
    const envoys = hops.flatMap(({ client, server }) => [client, server]);
    const leaf = await until('every Envoy has a certificate under the new root', () => commonLeaf(envoys, daemon));
    const seen = flows.reports().map(({ ok }) => ok);
    await until('requests flow on', () => flows.reports().every(({ ok }, index) => ok > (seen[index] ?? 0) + 20));
    const reports = await flows.stop();

    const newRoot = (await rootsOf(daemon)).find((root) => sameFingerprint(root, fingerprint));
    assert.ok(newRoot, 'sdsd serves the root that it announced');
    for (const report of reports) {
      assertUnharmed(report, 30);
      for (const seen of [report.clientSerials, report.serverSerials]) assert.equal([...seen].at(-1), leaf);
    }
    const underNewRoot = await credentialsFrom(daemon, IDENTITY);
    for (const { serverPort } of hops) {
      for (const { cert, key } of [underOldRoot, underNewRoot]) {
        await fromNode(serverPort, IDENTITY, () => ({ cert, key, ca: underNewRoot.ca }))(AbortSignal.timeout(5_000));
      }
      const served = await servedCertificate(serverPort);
      assert.ok(served.verify(newRoot.publicKey), 'the new root has signed what Envoy serves');
      assert.ok(!served.verify(oldRoot.publicKey));
    }
    await assertNothingRejected(hops);
  });

  test(`a certificate under a new root waits for the slowest Envoy ${version} to trust that root`, async () => {
    await using place = await createWorkplace();
    await using daemon = await startDaemon(place, { env: { SDSD_ROOT_ACK_TIMEOUT: '1m' } });
    await using sotw = await startHop({ binary, api: 'sotw', socket: place.socket });
    await using delta = await startHop({ binary, api: 'delta', socket: place.socket });
    const envoys = [sotw.client, sotw.server, delta.client, delta.server];
    await Promise.all([sotw.untilReady(), delta.untilReady()]);
    const before = await until('every Envoy has its first certificate', () => commonLeaf(envoys, daemon));
    await using flow = startFlow({ attempt: sotw.attempt, perSecond: REQUESTS_PER_SECOND });

    delta.client.pause();
    const awake = envoys.filter((envoy) => envoy !== delta.client);
    await daemon.control.rotateRoot();
    await until('the others trust the new root', async () => {
      const updates = await Promise.all(awake.map((envoy) => envoy.stat('sds.ROOTCA.update_success')));
      return updates.every((count) => count >= 2);
    });
    assert.deepEqual(await sentBehind(daemon), ['delta-client', 'delta-server', 'sotw-client', 'sotw-server']);
    const seen = flow.report().ok;
    await until('requests flow on', () => flow.report().ok > seen + REQUESTS_PER_SECOND);
    for (const { leaves } of await Promise.all(awake.map((envoy) => envoy.certs()))) {
      assert.deepEqual(
        leaves.map(({ serial }) => serial),
        [before],
      );
    }

    delta.client.resume();
    const after = await until('every Envoy has the new certificate', () => commonLeaf(envoys, daemon));
    assertUnharmed(await flow.stop(), REQUESTS_PER_SECOND);
    assert.notEqual(after, before);
    await assertNothingRejected([sotw, delta]);
  });

  test(`the end of an old root costs Envoy ${version} no request`, async () => {
    await using place = await createWorkplace();
    await using daemon = await startDaemon(place, { env: { SECRET_TTL: '6s' } });
    await using sotw = await startHop({ binary, api: 'sotw', socket: place.socket });
    await using delta = await startHop({ binary, api: 'delta', socket: place.socket });
    const hops = [sotw, delta];
    await Promise.all(hops.map((hop) => hop.untilReady()));
    const oldRoot = await onlyRoot(daemon);

    await using flows = startFlows(hops);
    await daemon.control.rotateRoot();
    await until('there are two roots', async () => (await rootsOf(daemon)).length === 2);
    const newRoot = await until('there is one root', async () => {
      const [root, ...others] = await rootsOf(daemon);
      return others.length === 0 && root;
    });
    const envoys = hops.flatMap(({ client, server }) => [client, server]);
    await until('every Envoy trusts the new root alone', async () => {
      const all = await Promise.all(envoys.map((envoy) => envoy.certs()));
      const wanted = normalSerial(newRoot.serialNumber);
      return all.every(({ roots }) => roots.length === 1 && roots[0]?.serial === wanted);
    });
    const reports = await flows.stop();

    assert.notEqual(newRoot.fingerprint256, oldRoot.fingerprint256);
    for (const report of reports) assertUnharmed(report, 4 * REQUESTS_PER_SECOND);
    await assertNothingRejected(hops);
  });
}

interface Flows extends AsyncDisposable {
  reports(): readonly FlowReport[];
  stop(): Promise<readonly FlowReport[]>;
}

function startFlows(hops: readonly Hop[]): Flows {
  const flows = hops.map(({ attempt }) => startFlow({ attempt, perSecond: REQUESTS_PER_SECOND }));
  const stop = (): Promise<readonly FlowReport[]> => Promise.all(flows.map((flow) => flow.stop()));
  return {
    reports: () => flows.map((flow) => flow.report()),
    stop,
    [Symbol.asyncDispose]: async () => {
      await stop();
    },
  };
}

function assertUnharmed({ ok, failed, reasons }: FlowReport, expected: number): void {
  assert.equal(failed, 0, `${failed} requests failed: ${JSON.stringify([...reasons])}`);
  assert.ok(ok > expected * 0.5, `only ${ok} requests in all`);
}

async function assertNothingRejected(hops: readonly Hop[]): Promise<void> {
  for (const envoy of hops.flatMap(({ client, server }) => [client, server])) {
    const rejected = await envoy.stats(/^sds\..*\.update_rejected$/);
    assert.deepEqual([...rejected.values()], [0, 0], envoy.log());
  }
}

/** The serial number of the daemon's present certificate, once it is the only one that every Envoy uses. */
async function commonLeaf(envoys: readonly Envoy[], daemon: Daemon): Promise<string | undefined> {
  const { secrets } = await daemon.control.status();
  const present = normalSerial(secrets.find(({ name }) => name === 'default')?.serialNumber ?? '');
  const all = await Promise.all(envoys.map((envoy) => envoy.certs()));
  return all.every(({ leaves }) => leaves.length === 1 && leaves[0]?.serial === present) ? present : undefined;
}

/** The Envoys to which the daemon has sent another certificate than its present one. */
async function sentBehind(daemon: Daemon): Promise<readonly string[]> {
  const { secrets, subscribers } = await daemon.control.status();
  const present = secrets.find(({ name }) => name === 'default')?.version;
  const behind = subscribers.filter(({ names }) =>
    names.some(({ name, sentVersion }) => name === 'default' && sentVersion !== present),
  );
  return behind.map(({ nodeId }) => nodeId).sort();
}

async function rootsOf(daemon: Daemon): Promise<readonly X509Certificate[]> {
  const { pem } = await daemon.control.roots();
  const blocks = pem.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g) ?? [];
  return blocks.map((block) => new X509Certificate(block));
}

async function onlyRoot(daemon: Daemon): Promise<X509Certificate> {
  const [root, ...others] = await rootsOf(daemon);
  assert.ok(root && others.length === 0, 'there is one root');
  return root;
}

function sameFingerprint(certificate: X509Certificate, fingerprint: string): boolean {
  return certificate.fingerprint256.replaceAll(':', '').toLowerCase() === fingerprint.replaceAll(':', '').toLowerCase();
}

/** What the server shows to whoever connects, trusted or not. */
function servedCertificate(port: number): Promise<X509Certificate> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host: '127.0.0.1', port, rejectUnauthorized: false }, () => {
      const certificate = socket.getPeerX509Certificate();
      socket.destroy();
      if (certificate) resolve(certificate);
      else reject(new Error('no certificate was served'));
    });
    socket.once('error', reject);
  });
}
