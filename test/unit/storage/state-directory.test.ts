import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, chown, lchown, mkdir, readdir, readFile, stat, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { systemClock } from '../../../src/clock.js';
import { lockDirectory } from '../../../src/sockets/index.js';
import { closedToGroup, openStateDirectory } from '../../../src/storage/index.js';
import { temporaryDirectory } from '../../support/temp.js';

const open = (path: string, trusted = '/nowhere') =>
  openStateDirectory({
    path,
    trusted,
    lock: (lock) =>
      lockDirectory({ path: lock, clock: systemClock, onLost: () => undefined, onTaken: () => undefined }),
  });

/** The ID of a user who is not root. */
const OTHER = 65_534;

/** Another process that has the directory. */
async function holder(path: string): Promise<ChildProcess> {
  const url = (module: string): string => JSON.stringify(new URL(`../../../src/${module}`, import.meta.url).href);
  const script = `const { openStateDirectory } = await import(${url('storage/index.ts')});
    const { lockDirectory } = await import(${url('sockets/index.ts')});
    const clock = { now: Date.now, at: () => ({ cancel() {} }) };
    const lock = (path) => lockDirectory({ path, clock, onLost() {}, onTaken() {} });
    await openStateDirectory({ path: ${JSON.stringify(path)}, trusted: '/', lock });
    console.log('has it'); setInterval(() => {}, 1000);`;
  const child = spawn(process.execPath, ['--import', 'tsx', '--input-type=module', '-e', script], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  await once(child.stdout, 'data');
  return child;
}

describe('closedToGroup', () => {
  it('names the directory that keeps the group of a socket out', async () => {
    await using temporary = await temporaryDirectory();
    await chmod(temporary.path, 0o755);
    const inner = join(temporary.path, 'a', 'b');
    await mkdir(inner, { recursive: true });
    const socket = join(inner, 'socket');
    await writeFile(socket, '');
    assert.equal(closedToGroup({ path: socket, trusted: temporary.path }), undefined);
    await chmod(join(temporary.path, 'a'), 0o710);
    assert.equal(closedToGroup({ path: socket, trusted: temporary.path }), undefined, 'its own group may pass');
    await chmod(join(temporary.path, 'a'), 0o700);
    assert.equal(closedToGroup({ path: socket, trusted: temporary.path }), join(temporary.path, 'a'));
  });
});

describe('the state directory', () => {
  for (const umask of [0o022, 0o000, 0o077, 0o777]) {
    it(`is made for its user alone, below directories that others may pass (umask ${umask.toString(8)})`, async () => {
      await using temporary = await temporaryDirectory();
      const before = process.umask(umask);
      const path = join(temporary.path, 'var', 'lib', 'sdsd');
      const state = await open(path).finally(() => process.umask(before));
      assert.equal((await stat(path)).mode & 0o777, 0o700);
      assert.equal((await stat(join(temporary.path, 'var'))).mode & 0o777, 0o755);
      assert.equal((await readFile(join(path, 'format'), 'utf8')).trim(), '1');
      await state.unlock();
    });
  }

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
    await mkdir(join(temporary.path, 'mine'));
    await writeFile(join(temporary.path, 'format'), '1\n');
    await writeFile(join(temporary.path, 'ca', 'ca.pem'), 'whole');
    const half = 'ca.pem.0123456789ab.tmp';
    await writeFile(join(temporary.path, 'ca', half), 'half');
    const others = [join('ca', 'notes.tmp'), join('ca', 'ca.pem.old.tmp'), 'report.tmp', join('mine', half), half];
    for (const other of others) await writeFile(join(temporary.path, other), 'precious');
    const state = await open(temporary.path);
    assert.deepEqual((await readdir(join(temporary.path, 'ca'))).sort(), ['ca.pem', 'ca.pem.old.tmp', 'notes.tmp']);
    for (const other of others) assert.equal(await readFile(join(temporary.path, other), 'utf8'), 'precious', other);
    await state.unlock();
  });

  it('is refused when it holds the things of somebody else, which stay as they are', async () => {
    await using temporary = await temporaryDirectory();
    const names = ['a.tmp', 'letters', 'photos', 'taxes'];
    for (const name of names) await writeFile(join(temporary.path, name), name);
    await assert.rejects(open(temporary.path), {
      code: 'ERR_SDSD_STATE',
      message: /holds a\.tmp, letters, photos and 1 more, and no file "format"/,
      hint: /--state-dir/,
    });
    assert.deepEqual((await readdir(temporary.path)).sort(), names);
  });

  it('may be a new file system, or what a start left that was killed before it wrote the format', async () => {
    await using temporary = await temporaryDirectory();
    await mkdir(join(temporary.path, 'lost+found'));
    await writeFile(join(temporary.path, 'format.0123456789ab.tmp'), '');
    const state = await open(temporary.path);
    assert.deepEqual((await readdir(temporary.path)).sort(), ['format', 'lock', 'lost+found']);
    await state.unlock();
  });

  const foreign: readonly [what: string, make: (place: string, path: string) => Promise<unknown>, message: RegExp][] = [
    [
      'it leads through a link into the directory of another user',
      async (place, path) => {
        await mkdir(join(place, 'theirs', 'state'), { recursive: true, mode: 0o700 });
        await chown(join(place, 'theirs'), OTHER, OTHER);
        await symlink(join(place, 'theirs', 'state'), path);
      },
      /theirs belongs to the user with the ID 65534/,
    ],
    [
      'it belongs to another user',
      async (_place, path) => {
        await mkdir(path, { mode: 0o700 });
        await chown(path, OTHER, OTHER);
      },
      /state belongs to the user with the ID 65534/,
    ],
    [
      'a directory in it belongs to another user',
      async (_place, path) => {
        await mkdir(join(path, 'identities'), { recursive: true, mode: 0o700 });
        await chmod(path, 0o700);
        await chown(join(path, 'identities'), OTHER, OTHER);
      },
      /identities belongs to the user with the ID 65534/,
    ],
    [
      'the link to it belongs to another user',
      async (place, path) => {
        await mkdir(join(place, 'ours'), { mode: 0o700 });
        await symlink(join(place, 'ours'), path);
        await lchown(path, OTHER, OTHER);
      },
      /the link .*state belongs to the user with the ID 65534/,
    ],
  ];
  for (const [what, make, message] of foreign) {
    it(`is refused when ${what}`, { skip: process.getuid?.() !== 0 && 'only root can give files away' }, async () => {
      await using temporary = await temporaryDirectory();
      const path = join(temporary.path, 'state');
      await make(temporary.path, path);
      await assert.rejects(open(path), { code: 'ERR_SDSD_STATE', message, hint: /chown -h 0 / });
    });
  }

  it('may stand below the working directory, whoever owns that', { skip: process.getuid?.() !== 0 }, async () => {
    await using temporary = await temporaryDirectory();
    await chown(temporary.path, OTHER, OTHER);
    const path = join(temporary.path, 'var', 'state');
    await assert.rejects(open(path), { code: 'ERR_SDSD_STATE' });
    await (await open(path, temporary.path)).unlock();
    await chown(join(temporary.path, 'var'), OTHER, OTHER);
    await assert.rejects(open(path, temporary.path), { code: 'ERR_SDSD_STATE', message: /var belongs to/ });
  });

  it('is refused when it is a link to nothing: a volume that is not mounted', async () => {
    await using temporary = await temporaryDirectory();
    await symlink(join(temporary.path, 'volume'), join(temporary.path, 'state'));
    await assert.rejects(open(join(temporary.path, 'state')), {
      code: 'ERR_SDSD_STATE',
      message: /state is a symbolic link to .*volume, which does not exist/,
      hint: /mount or restore/,
    });
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
