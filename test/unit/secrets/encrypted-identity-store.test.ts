import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { chmod, readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { silentLogger } from '../../../src/log.js';
import { encryptedIdentityStore, type IdentityStore, readStateKey } from '../../../src/secrets/index.js';
import { TestCa } from '../../../src/testing/test-ca.js';
import { VirtualClock } from '../../../src/testing/virtual-clock.js';
import { CALLER, certificateOf, IDENTITY, startManager } from '../../support/manager.js';
import { temporaryDirectory } from '../../support/temp.js';

const HOUR = 3_600_000;

function storeIn(directory: string, key: Buffer, warnings: string[] = []): IdentityStore {
  const log = { ...silentLogger, warn: (message: string) => void warnings.push(message) };
  return encryptedIdentityStore({ directory: join(directory, 'identities'), key, log });
}

/** A manager that keeps its certificate in `directory`, has obtained one, and is closed again. */
async function obtainAndClose(directory: string, key: Buffer, clock: VirtualClock, ca: TestCa): Promise<string> {
  await using test = await startManager({ clock, ca, identityStore: storeIn(directory, key) });
  const secret = certificateOf(await test.manager.generateSecret('default', CALLER));
  return secret.serialNumber;
}

describe('certificates kept over a restart', () => {
  it('are served at once while the CA is down, and renewed when they were due before', async () => {
    await using directory = await temporaryDirectory();
    const key = randomBytes(32);
    const clock = new VirtualClock();
    const ca = await TestCa.create(clock);
    const serial = await obtainAndClose(directory.path, key, clock, ca);
    await clock.advance(0.25 * HOUR);
    ca.fault = 'down';
    await using test = await startManager({ clock, ca, identityStore: storeIn(directory.path, key) });
    const restored = certificateOf(await test.manager.generateSecret('default', CALLER));
    assert.equal(restored.serialNumber, serial);
    assert.equal((await test.manager.generateSecret('ROOTCA', CALLER)).kind, 'secret');
    const calls = ca.calls.length;
    await clock.advance(0.25 * HOUR - 1);
    assert.equal(ca.calls.length, calls, 'not before it is due');
    ca.fault = undefined;
    await clock.advance(1);
    assert.equal(ca.calls.length, calls + 1);
  });

  it('are looked at first: the CA is not asked while they are read, whoever comes meanwhile', async () => {
    await using directory = await temporaryDirectory();
    const key = randomBytes(32);
    const clock = new VirtualClock();
    const ca = await TestCa.create(clock);
    const serial = await obtainAndClose(directory.path, key, clock, ca);
    const calls = ca.calls.length;
    const warnings: string[] = [];
    await using test = await startManager({ clock, ca, identityStore: storeIn(directory.path, key, warnings) });
    const results: string[] = [];
    test.manager.subscribe('default', CALLER, (result) => {
      if (result.kind === 'secret') results.push(certificateOf(result).serialNumber);
    });
    await test.manager.generateSecret('default', CALLER);
    assert.deepEqual(results, [serial]);
    assert.equal(ca.calls.length, calls);
    for (let i = 0; i < 5; i++) await test.manager.rotate();
    assert.deepEqual([...warnings, ...test.logged.filter((line) => !line.startsWith('info'))], []);
  });

  const unusable: readonly [why: string, spoil: (file: string) => Promise<unknown>][] = [
    ['changed by one bit', async (file) => writeFile(file, flip(await readFile(file)))],
    ['cut short', async (file) => writeFile(file, (await readFile(file)).subarray(0, 100))],
    ['empty', (file) => writeFile(file, '')],
    ['garbage', (file) => writeFile(file, randomBytes(500))],
  ];
  for (const [why, spoil] of unusable) {
    it(`are asked for anew when the file is ${why}, with a warning`, async () => {
      await using directory = await temporaryDirectory();
      const key = randomBytes(32);
      const clock = new VirtualClock();
      const ca = await TestCa.create(clock);
      const serial = await obtainAndClose(directory.path, key, clock, ca);
      const [file = ''] = await readdir(join(directory.path, 'identities'));
      await spoil(join(directory.path, 'identities', file));
      const warnings: string[] = [];
      await using test = await startManager({ clock, ca, identityStore: storeIn(directory.path, key, warnings) });
      assert.notEqual(certificateOf(await test.manager.generateSecret('default', CALLER)).serialNumber, serial);
      assert.equal(warnings.length, 1);
    });
  }

  it('are asked for anew when they have expired, belong to another identity, or need another key', async () => {
    await using directory = await temporaryDirectory();
    const key = randomBytes(32);
    const clock = new VirtualClock();
    const ca = await TestCa.create(clock);
    const serial = await obtainAndClose(directory.path, key, clock, ca);
    for (const change of [
      { identities: new Map([['default', `${IDENTITY}-2`]]) },
      { identityStore: storeIn(directory.path, randomBytes(32)) },
    ]) {
      await using test = await startManager({ clock, ca, identityStore: storeIn(directory.path, key), ...change });
      assert.notEqual(certificateOf(await test.manager.generateSecret('default', CALLER)).serialNumber, serial);
    }
    await clock.advance(2 * HOUR);
    await using test = await startManager({ clock, ca, identityStore: storeIn(directory.path, key) });
    assert.notEqual(certificateOf(await test.manager.generateSecret('default', CALLER)).serialNumber, serial);
  });

  it('cannot be exchanged for one another, and hold neither key nor name in clear', async () => {
    await using directory = await temporaryDirectory();
    const key = randomBytes(32);
    const clock = new VirtualClock();
    const ca = await TestCa.create(clock);
    await obtainAndClose(directory.path, key, clock, ca);
    const folder = join(directory.path, 'identities');
    const [file = ''] = await readdir(folder);
    const sealed = await readFile(join(folder, file));
    for (const clear of ['PRIVATE KEY', 'CERTIFICATE', 'spiffe', 'default']) assert.ok(!sealed.includes(clear), clear);
    assert.equal((await stat(join(folder, file))).mode & 0o777, 0o600);
    const store = storeIn(directory.path, key);
    await store.save('other', {
      identity: IDENTITY,
      issued: { keyPem: Buffer.from('x'), chain: [], roots: [] },
      obtainedAt: 0,
    });
    const other = (await readdir(folder)).find((each) => each !== file) ?? '';
    await writeFile(join(folder, other), sealed);
    assert.equal(await store.load('other', IDENTITY), undefined);
    assert.ok(await store.load('default', IDENTITY));
  });
});

function flip(bytes: Buffer): Buffer {
  const changed = Buffer.from(bytes);
  changed.writeUInt8(changed.readUInt8(60) ^ 1, 60);
  return changed;
}

describe('readStateKey', () => {
  it('takes 32 bytes as they are, in hexadecimal and in base64, with a newline or without', async () => {
    await using directory = await temporaryDirectory();
    const key = randomBytes(32);
    const file = join(directory.path, 'key');
    for (const content of [key, key.toString('hex'), `${key.toString('hex')}\n`, `${key.toString('base64')}\n`]) {
      await writeFile(file, content);
      assert.deepEqual(await readStateKey(file), key);
    }
  });

  it('refuses everything else, says how to make one, and never shows what it read', async () => {
    await using directory = await temporaryDirectory();
    const file = join(directory.path, 'key');
    for (const content of ['', 'secret-passphrase', randomBytes(31), 'a'.repeat(63)]) {
      await writeFile(file, content);
      await assert.rejects(readStateKey(file), (error: Error & { code?: string; hint?: string }) => {
        assert.equal(error.code, 'ERR_SDSD_CONFIG');
        assert.match(error.hint ?? '', /openssl rand/);
        assert.ok(!error.message.includes('secret-passphrase'));
        return true;
      });
    }
    await assert.rejects(readStateKey(join(directory.path, 'none')), { code: 'ERR_SDSD_CONFIG' });
  });
});

describe('the file of the state key', () => {
  it('is refused if others may write it, and told of if they may read it', async () => {
    await using temporary = await temporaryDirectory();
    const path = join(temporary.path, 'state.key');
    await writeFile(path, 'ab'.repeat(32));
    for (const mode of [0o666, 0o620, 0o602]) {
      await chmod(path, mode);
      await assert.rejects(readStateKey(path), {
        code: 'ERR_SDSD_CONFIG',
        message: /others than its owner may write it/,
        hint: new RegExp(`chmod 600 ${path}`),
      });
    }
    const told = async (mode: number): Promise<boolean> => {
      let isReadable = false;
      await chmod(path, mode);
      await readStateKey(path, () => {
        isReadable = true;
      });
      return isReadable;
    };
    assert.deepEqual([await told(0o644), await told(0o640), await told(0o400)], [true, false, false]);
  });
});
