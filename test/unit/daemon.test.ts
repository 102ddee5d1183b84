/** A daemon as a library: what holds before, while and after it is open. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { loadConfig } from '../../src/config/index.js';
import { createDaemon } from '../../src/daemon.js';
import { silentLogger } from '../../src/log.js';
import { caIdentitySource, type IdentitySource } from '../../src/secrets/index.js';
import { TestCa, VirtualClock } from '../../src/testing/index.js';
import { createWorkplace } from '../support/daemon.js';
import { CALLER, startManager } from '../support/manager.js';

describe('a daemon', { timeout: 30_000 }, () => {
  it('refuses commands after it is closed, and leaves no timer', async () => {
    await using place = await createWorkplace();
    const clock = new VirtualClock();
    const ca = await TestCa.create(clock);
    const config = await loadConfig({ flags: {}, env: {}, cwd: place.directory });
    const { control, ready, close } = await createDaemon({ config, log: silentLogger, clock, ca });
    await ready;
    await close();
    const commands: readonly (() => unknown)[] = [
      () => control.status(),
      () => control.rotate(),
      () => control.rotateRoot(),
      () => control.roots(),
      () => control.issue({ identity: 'spiffe://cluster.local/a', csrPem: '' }),
    ];
    for (const command of commands) await assert.rejects(async () => command(), { code: 'ERR_SDSD_CONTROL' });
    assert.equal(clock.pending, 0);
    assert.equal(ca.fault, 'down', 'the CA that it was given is closed with it');
  });

  it("takes its certificates from a source of one's own", async () => {
    await using place = await createWorkplace();
    const clock = new VirtualClock();
    const ca = await TestCa.create(clock);
    const inner = caIdentitySource({
      ca,
      algorithm: { kind: 'ecdsa', curve: 'P-256' },
      encoding: 'pkcs8',
      ttl: 60_000,
    });
    const source: IdentitySource = { ...inner, description: 'my vault' };
    const config = await loadConfig({ flags: {}, env: {}, cwd: place.directory });
    const daemon = await createDaemon({ config, log: silentLogger, clock, ca, source });
    assert.equal((await daemon.ready).source, 'my vault');
    await daemon.close();
  });

  it('is not started with a setting that nobody reads', async () => {
    const load = (key: string) => loadConfig({ flags: { [key]: '/x' }, env: {}, cwd: '/' });
    await assert.rejects(load('sockets'), { code: 'ERR_SDSD_CONFIG', hint: /did you mean socket\?/ });
    await assert.rejects(load('zzzzzzzzz'), { code: 'ERR_SDSD_CONFIG', hint: /the settings are socket, / });
  });
});

describe('a listener that throws', () => {
  it('keeps nothing from the others, nor the next renewal', async () => {
    await using test = await startManager();
    let calls = 0;
    const results: string[] = [];
    test.manager.subscribe('default', CALLER, () => {
      if (calls++ > 0) throw new Error('a fault of the listener');
    });
    test.manager.subscribe('default', CALLER, ({ kind }) => results.push(kind));
    await test.clock.advance(3 * 3_600_000);
    assert.deepEqual(results.slice(0, 2), ['pending', 'secret']);
    assert.ok(results.length > 5, `${results.length} results`);
    assert.ok(test.ca.calls.length > 5);
    assert.ok(test.logged.includes('error: a listener of a secret failed'));
  });
});
