import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { SdsApi } from '../../src/cli/envoy-bootstrap.js';
import { credentialsFrom } from '../support/credentials.js';
import { createWorkplace, type Daemon, startDaemon } from '../support/daemon.js';
import { envoyReleases } from '../support/envoy.js';
import { type ClientCredentials, fromNode, normalSerial } from '../support/handshakes.js';
import { startHop } from '../support/hop.js';
import { until } from '../support/until.js';

const IDENTITY = 'spiffe://cluster.local/ns/default/sa/default';
const APIS: readonly SdsApi[] = ['sotw', 'delta'];

const { releases, skip } = await envoyReleases();
test('Envoy binaries to test with', { skip }, () => assert.notEqual(releases.length, 0));

for (const { version, binary } of releases) {
  for (const api of APIS) {
    describe(`Envoy ${version} with ${api} SDS`, () => {
      test('serves the certificate that sdsd gave it, under our roots', async () => {
        await using place = await createWorkplace();
        await using daemon = await startDaemon(place);
        await using hop = await startHop({ binary, api, socket: place.socket });
        await hop.untilReady();

        const serial = await serialServed(daemon);
        for (const envoy of [hop.server, hop.client]) {
          const { leaves, roots } = await envoy.certs();
          assert.deepEqual(
            leaves.map((leaf) => [leaf.serial, leaf.uris]),
            [[serial, [IDENTITY]]],
          );
          assert.equal(roots.length, 1);
          for (const name of ['default', 'ROOTCA']) {
            assert.ok((await envoy.stat(`sds.${name}.update_success`)) >= 1, `${name} was accepted`);
            assert.equal(await envoy.stat(`sds.${name}.update_rejected`), 0);
          }
        }
        assert.deepEqual(await hop.attempt(AbortSignal.timeout(5_000)), { client: serial, server: serial });
      });

      test('started before sdsd, has its certificate as soon as sdsd is there', async () => {
        await using place = await createWorkplace();
        await using hop = await startHop({ binary, api, socket: place.socket });
        await until('Envoy has tried in vain', async () => (await hop.server.stat('sds.default.update_failure')) >= 2);
        assert.equal(await hop.server.ready(), false);

        await using daemon = await startDaemon(place);
        await hop.untilReady();
        const serial = await serialServed(daemon);
        assert.deepEqual(await hop.attempt(AbortSignal.timeout(5_000)), { client: serial, server: serial });
      });

      test('keeps serving while sdsd is away, and has its new certificate when sdsd is back', async () => {
        await using place = await createWorkplace();
        const first = await startDaemon(place);
        await using hop = await startHop({ binary, api, socket: place.socket });
        await hop.untilReady();
        const serial = await serialServed(first);
        await first.kill();
        assert.deepEqual(await hop.attempt(AbortSignal.timeout(5_000)), { client: serial, server: serial });

        await using second = await startDaemon(place);
        const successor = await serialServed(second);
        assert.notEqual(successor, serial);
        await until('both have the successor', async () => {
          const all = await Promise.all([hop.server.certs(), hop.client.certs()]);
          return all.every(({ leaves }) => leaves.every((leaf) => leaf.serial === successor));
        });
        assert.deepEqual(await hop.attempt(AbortSignal.timeout(5_000)), { client: successor, server: successor });
      });
    });
  }

  test(`Envoy ${version} lets in who has a certificate from sdsd, and nobody else`, async () => {
    await using place = await createWorkplace();
    await using elsewhere = await createWorkplace();
    await using daemon = await startDaemon(place);
    await using foreign = await startDaemon(elsewhere);
    await using hop = await startHop({ binary, api: 'sotw', socket: place.socket });
    await hop.untilReady();

    const knock = (credentials: Partial<ClientCredentials>): Promise<unknown> =>
      fromNode(hop.serverPort, IDENTITY, () => credentials)(AbortSignal.timeout(5_000));
    const ours = await credentialsFrom(daemon, 'spiffe://cluster.local/ns/a/sa/b');
    const theirs = await credentialsFrom(foreign, 'spiffe://cluster.local/ns/a/sa/b');
    await knock(ours);
    await assert.rejects(knock({ ca: ours.ca }), /alert|ECONNRESET|hang up/);
    await assert.rejects(knock({ ...theirs, ca: ours.ca }), /alert|ECONNRESET|hang up/);
    await assert.rejects(knock({ ...ours, ca: theirs.ca }), /self.signed|unable to (?:get|verify)|signature/);
  });
}

async function serialServed(daemon: Daemon): Promise<string> {
  const { secrets } = await daemon.control.status();
  const serial = secrets.find(({ name }) => name === 'default')?.serialNumber;
  assert.ok(serial, 'sdsd has a certificate');
  return normalSerial(serial);
}
