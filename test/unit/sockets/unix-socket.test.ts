import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs';
import { connect, createServer, type Server } from 'node:net';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { systemClock } from '../../../src/clock.js';
import { errnoOf } from '../../../src/errors.js';
import { type ListenOptions, listenUnix, MAX_SOCKET_PATH_BYTES, probeSocket } from '../../../src/sockets/index.js';
import { temporaryDirectory } from '../../support/temp.js';

const GREETING = Buffer.from('hello');

/** A server that answers, as ours do. */
function answering(): Server {
  return createServer((socket) => socket.end('here'));
}

function options(path: string): ListenOptions {
  return { path, mode: 0o660, greeting: GREETING, setting: '--socket or SDS_SOCKET', clock: systemClock };
}

async function ask(path: string): Promise<string> {
  const socket = connect(path);
  const [data] = await once(socket, 'data');
  return String(data);
}

/** Leaves a socket behind as a process does that is killed. */
async function leaveDeadSocket(path: string): Promise<void> {
  const code = `require('net').createServer().listen(${JSON.stringify(path)}, () => process.kill(process.pid, 'SIGKILL'))`;
  await once(spawn(process.execPath, ['-e', code]), 'exit');
  assert.ok(statSync(path).isSocket());
}

describe('listenUnix', () => {
  it('makes missing directories, and gives the socket its mode whatever the umask', async () => {
    await using directory = await temporaryDirectory();
    for (const [umask, mode] of [
      [0o077, 0o660],
      [0o000, 0o600],
      [0o777, 0o660],
    ] as const) {
      const path = join(directory.path, 'a', String(umask), 'socket');
      const before = process.umask(umask);
      try {
        const listener = await listenUnix(answering(), { ...options(path), mode });
        assert.equal(statSync(path).mode & 0o777, mode);
        assert.equal(statSync(join(path, '..')).mode & 0o777, 0o755, 'those whom the mode lets in can reach it');
        assert.deepEqual(readdirSync(join(path, '..')), ['socket'], 'nothing else is left');
        await listener.close();
      } finally {
        process.umask(before);
      }
      assert.ok(!existsSync(path), 'the socket goes with its listener');
    }
  });

  it('takes the longest path that there is, and refuses a longer one before it binds anything (S5)', async () => {
    await using directory = await temporaryDirectory();
    const fits = join(directory.path, 'x'.repeat(MAX_SOCKET_PATH_BYTES - directory.path.length - 1));
    const listener = await listenUnix(answering(), options(fits));
    assert.equal(await ask(fits), 'here');
    await listener.close();
    await assert.rejects(listenUnix(answering(), options(`${fits}y`)), {
      code: 'ERR_SDSD_SOCKET',
      message: new RegExp(`has ${MAX_SOCKET_PATH_BYTES + 1} bytes`),
    });
    assert.deepEqual(readdirSync(directory.path), []);
  });

  it('replaces a socket that nothing listens on (S1)', async () => {
    await using directory = await temporaryDirectory();
    const path = join(directory.path, 'socket');
    await leaveDeadSocket(path);
    const listener = await listenUnix(answering(), options(path));
    assert.equal(await ask(path), 'here');
    await listener.close();
  });

  it('leaves the path to a server that accepts and stays mute, and names the cure', async () => {
    await using directory = await temporaryDirectory();
    const path = join(directory.path, 'socket');
    const mute = createServer(() => undefined).listen(path);
    await once(mute, 'listening');
    await assert.rejects(listenUnix(answering(), options(path)), {
      code: 'ERR_SDSD_SOCKET_IN_USE',
      message: /answers nothing/,
      hint: /end it, or choose another path with --socket or SDS_SOCKET/,
    });
    assert.deepEqual(readdirSync(directory.path), ['socket']);
    mute.close();
  });

  it('can be found by its directory in the list of listening sockets', {
    skip: process.platform !== 'linux',
  }, async () => {
    await using directory = await temporaryDirectory();
    const path = join(directory.path, 'socket');
    const listener = await listenUnix(answering(), options(path));
    const listening = readFileSync('/proc/net/unix', 'utf8').split('\n');
    assert.equal(listening.filter((line) => line.includes(`${directory.path}/`)).length, 1);
    await listener.close();
  });

  it('removes what a start left that was killed half-way', async () => {
    await using directory = await temporaryDirectory();
    await leaveDeadSocket(join(directory.path, '.sdsd-new-1-abcd'));
    const living = createServer(() => undefined).listen(join(directory.path, '.sdsd-new-2-abcd'));
    await once(living, 'listening');
    const listener = await listenUnix(answering(), options(join(directory.path, 'socket')));
    assert.deepEqual(readdirSync(directory.path).sort(), ['.sdsd-new-2-abcd', 'socket']);
    await listener.close();
    living.close();
  });

  it('says what is wrong below a directory that takes no directories', async () => {
    await assert.rejects(listenUnix(answering(), options('/proc/nowhere/socket')), { code: 'ERR_SDSD_SOCKET' });
  });

  it('takes a server that cuts connections for a living one: it may be full', async () => {
    await using directory = await temporaryDirectory();
    const path = join(directory.path, 'socket');
    const full = createServer((socket) => socket.destroy()).listen(path);
    await once(full, 'listening');
    await assert.rejects(listenUnix(answering(), options(path)), { code: 'ERR_SDSD_SOCKET_IN_USE' });
    full.close();
  });

  it('refuses to take the place of a server that answers', async () => {
    await using directory = await temporaryDirectory();
    const path = join(directory.path, 'socket');
    const first = await listenUnix(answering(), options(path));
    await assert.rejects(listenUnix(answering(), options(path)), { code: 'ERR_SDSD_SOCKET_IN_USE' });
    assert.equal(await ask(path), 'here');
    await first.close();
  });

  const inTheWay: readonly [kind: string, make: (path: string) => void][] = [
    ['a file', (path) => writeFileSync(path, 'precious')],
    ['a directory', (path) => mkdirSync(path)],
    ['a symbolic link', (path) => symlinkSync('/nowhere', path)],
  ];
  for (const [kind, make] of inTheWay) {
    it(`leaves ${kind} alone that is in the way, and says so (S3)`, async () => {
      await using directory = await temporaryDirectory();
      const path = join(directory.path, 'socket');
      make(path);
      await assert.rejects(listenUnix(answering(), options(path)), {
        code: 'ERR_SDSD_SOCKET',
        message: new RegExp(kind),
      });
      assert.deepEqual(readdirSync(directory.path), ['socket']);
    });
  }

  it('says what is wrong when the directory is a file', async () => {
    await using directory = await temporaryDirectory();
    writeFileSync(join(directory.path, 'file'), '');
    await assert.rejects(listenUnix(answering(), options(join(directory.path, 'file', 'socket'))), {
      code: 'ERR_SDSD_SOCKET',
      hint: /directory/,
    });
  });

  it('lets one of many that start at once have the path (a dead socket is in the way)', async () => {
    await using directory = await temporaryDirectory();
    const path = join(directory.path, 'socket');
    await leaveDeadSocket(path);
    const script = `
      import { createServer } from 'node:net';
      import { systemClock } from ${JSON.stringify(new URL('../../../src/clock.ts', import.meta.url).href)};
      import { listenUnix } from ${JSON.stringify(new URL('../../../src/sockets/index.ts', import.meta.url).href)};
      process.stdin.once('data', async () => {
        try {
          await listenUnix(createServer((socket) => socket.end(String(process.pid))), {
            path: ${JSON.stringify(path)}, mode: 0o600, greeting: Buffer.from('?'), setting: '--socket', clock: systemClock });
          console.log('serves');
        } catch (error) { console.log(error.code); process.exit(0); }
      });
      console.log('waits');`;
    const children = Array.from({ length: 4 }, () =>
      spawn(process.execPath, ['--import', 'tsx', '--input-type=module', '-e', script], {
        stdio: ['pipe', 'pipe', 'inherit'],
      }),
    );
    const outputs = children.map((child) => {
      const lines: string[] = [];
      const waiters: (() => void)[] = [];
      child.stdout.on('data', (data: Buffer) => {
        lines.push(...data.toString().trim().split('\n'));
        for (const wake of waiters.splice(0)) wake();
      });
      return async (count: number): Promise<string[]> => {
        while (lines.length < count) await new Promise<void>((resolve) => waiters.push(resolve));
        return lines;
      };
    });
    try {
      await Promise.all(outputs.map((lines) => lines(1)));
      for (const child of children) child.stdin.write('go\n');
      const said = (await Promise.all(outputs.map((lines) => lines(2)))).map(([, line]) => line);
      const winner = children[said.indexOf('serves')];
      assert.deepEqual(said.toSorted(), [...Array(3).fill('ERR_SDSD_SOCKET_IN_USE'), 'serves'].sort());
      assert.equal(await ask(path), String(winner?.pid));
      assert.deepEqual(readdirSync(directory.path), ['socket']);
    } finally {
      for (const child of children) child.kill('SIGKILL');
    }
  });
});

describe('a listener whose path was taken', () => {
  it('knows that it was deleted, or replaced, and leaves the other server its socket when it closes', async () => {
    await using directory = await temporaryDirectory();
    const path = join(directory.path, 'socket');
    const listener = await listenUnix(answering(), options(path));
    assert.ok(listener.ownsPath());
    unlinkSync(path);
    assert.ok(!listener.ownsPath());
    const other = createServer((socket) => socket.end('other')).listen(path);
    await once(other, 'listening');
    assert.ok(!listener.ownsPath());
    await listener.close();
    assert.equal(await ask(path), 'other');
    other.close();
  });
});

describe('probeSocket', () => {
  it('tells an absent, a dead and a living socket apart', async () => {
    await using directory = await temporaryDirectory();
    const path = join(directory.path, 'socket');
    const probe = () => probeSocket({ path, greeting: GREETING, clock: systemClock, timeoutMs: 5_000 });
    const refused = async () => {
      const found = await probe();
      return found.kind === 'refused' ? errnoOf(found.error) : found.kind;
    };
    assert.equal(await refused(), 'ENOENT');
    await leaveDeadSocket(path);
    assert.equal(await refused(), 'ECONNREFUSED');
    const listener = await listenUnix(answering(), options(path));
    assert.equal((await probe()).kind, 'answers');
    await listener.close();
  });
});
