import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdir, readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { systemClock } from '../../src/clock.js';
import { openStateDirectory } from '../../src/state-directory.js';
import { temporaryDirectory } from '../support/temp.js';

const open = (path: string) =>
  openStateDirectory({ path, clock: systemClock, onLockLost: () => undefined, onTaken: () => undefined });

/** Another process that has the directory. */
async function holder(path: string): Promise<ChildProcess> {
  const url = JSON.stringify(new URL('../../src/state-directory.ts', import.meta.url).href);
  const script = `const { openStateDirectory } = await import(${url});
    await openStateDirectory({ path: ${JSON.stringify(path)}, clock: { now: Date.now, at: () => ({ cancel() {} }) }, onLockLost() {}, onTaken() {} }); console.log('has it'); setInterval(() => {}, 1000);`;
  const child = spawn(process.execPath, ['--import', 'tsx', '--input-type=module', '-e', script], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  await once(child.stdout, 'data');
  return child;
}

describe('the state directory', () => {
  it('is made for its user alone, below directories that others may pass', async () => {
    await using temporary = await temporaryDirectory();
    const before = process.umask(0o022);
    const path = join(temporary.path, 'var', 'lib', 'sdsd');
    const state = await open(path).finally(() => process.umask(before));
    assert.equal((await stat(path)).mode & 0o777, 0o700);
    assert.equal((await stat(join(temporary.path, 'var'))).mode & 0o777, 0o755);
    assert.equal((await readFile(join(path, 'format'), 'utf8')).trim(), '1');
    await state.unlock();
  });

  it('belongs to one daemon at a time, also through a path that is longer than any socket may have', async () => {
    await using temporary = await temporaryDirectory();
    const path = join(temporary.path, 'x'.repeat(120));
    const first = await open(path);
    await assert.rejects(open(path), { code: 'ERR_SDSD_STATE_LOCKED', hint: /--state-dir/ });
    await first.unlock();
    const second = await open(path);
    await second.unlock();
  });

  it('stays with a daemon that is stopped for a while', async () => {
    await using temporary = await temporaryDirectory();
    const child = await holder(temporary.path);
    child.kill('SIGSTOP');
    await assert.rejects(open(temporary.path), { code: 'ERR_SDSD_STATE_LOCKED' });
    child.kill('SIGKILL');
    await once(child, 'exit');
  });

  it('can be taken after its daemon was killed', async () => {
    await using temporary = await temporaryDirectory();
    const child = await holder(temporary.path);
    await assert.rejects(open(temporary.path), { code: 'ERR_SDSD_STATE_LOCKED' });
    child.kill('SIGKILL');
    await once(child, 'exit');
    const state = await open(temporary.path);
    await state.unlock();
  });

  it('loses what a killed daemon left half written, and nothing else', async () => {
    await using temporary = await temporaryDirectory();
    await mkdir(join(temporary.path, 'ca'));
    await writeFile(join(temporary.path, 'ca', 'ca.pem'), 'whole');
    await writeFile(join(temporary.path, 'ca', 'ca.pem.1234.tmp'), 'half');
    const state = await open(temporary.path);
    assert.deepEqual(await readdir(join(temporary.path, 'ca')), ['ca.pem']);
    await state.unlock();
  });

  const refusals: readonly [why: string, spoil: (path: string) => Promise<unknown>, message: RegExp, hint: RegExp][] = [
    ['others may read it', (path) => chmod(path, 0o755), /other users may read/, /chmod 700/],
    [
      'it was written by a later version',
      (path) => writeFile(join(path, 'format'), '2\n'),
      /format "2"/,
      /--state-dir/,
    ],
  ];
  for (const [why, spoil, message, hint] of refusals) {
    it(`is refused when ${why}, with the cure, and is not locked by that`, async () => {
      await using temporary = await temporaryDirectory();
      await spoil(temporary.path);
      for (let tries = 0; tries < 2; tries++) {
        await assert.rejects(open(temporary.path), { code: 'ERR_SDSD_STATE', message, hint });
      }
    });
  }

  it('is refused when it is a file', async () => {
    await using temporary = await temporaryDirectory();
    await writeFile(join(temporary.path, 'file'), '');
    await assert.rejects(open(join(temporary.path, 'file')), { code: 'ERR_SDSD_STATE' });
    await assert.rejects(open(join(temporary.path, 'file', 'below')), { code: 'ERR_SDSD_STATE' });
  });
});
