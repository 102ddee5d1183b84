import assert from 'node:assert/strict';
import { once } from 'node:events';
import { renameSync, unlinkSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { systemClock } from '../../../src/clock.js';
import { SdsdError } from '../../../src/errors.js';
import { keepListening, listenUnix, type UnixListener } from '../../../src/sockets/index.js';
import { VirtualClock } from '../../../src/testing/virtual-clock.js';
import { temporaryDirectory } from '../../support/temp.js';
import { until } from '../../support/until.js';

const SECOND = 1_000;

async function ask(path: string): Promise<string> {
  const socket = connect(path);
  const [data] = await once(socket, 'data');
  return String(data);
}

/** A kept listener whose servers answer with the number of the listener, and what it told. */
async function keep(path: string) {
  const clock = new VirtualClock();
  const told: string[] = [];
  let round = 0;
  const listener = await keepListening({
    listen: () => {
      const name = `listener ${++round}`;
      const server = createServer((socket) => socket.end(name));
      return listenUnix(server, {
        path,
        mode: 0o600,
        greeting: Buffer.from('?'),
        setting: '--socket',
        clock: systemClock,
      });
    },
    clock,
    onRestored: () => told.push('restored'),
    onLost: () => told.push('lost'),
    onTaken: ({ code }) => told.push(code),
  });
  return { clock, told, listener };
}

describe('a kept listener', () => {
  it('is there again within a second after its socket was deleted, as often as that happens', async () => {
    await using directory = await temporaryDirectory();
    const path = join(directory.path, 'socket');
    const { clock, told, listener } = await keep(path);
    for (let round = 1; round <= 3; round++) {
      assert.equal(await ask(path), `listener ${round}`);
      unlinkSync(path);
      await clock.advance(SECOND);
      await until('restored', () => told.length === round);
    }
    assert.deepEqual(told, ['restored', 'restored', 'restored']);
    await listener.close();
    assert.equal(clock.pending, 0);
  });

  it('gives up when another server has taken the path, and leaves it alone', async () => {
    await using directory = await temporaryDirectory();
    const path = join(directory.path, 'socket');
    const { clock, told, listener } = await keep(path);
    const other = createServer((socket) => socket.end('another'));
    await listenUnix(other, {
      path: `${path}2`,
      mode: 0o600,
      greeting: Buffer.from('?'),
      setting: '--socket',
      clock: systemClock,
    });
    renameSync(`${path}2`, path);
    await clock.advance(SECOND);
    await until('taken', () => told.length === 1);
    assert.deepEqual(told, ['ERR_SDSD_SOCKET_IN_USE']);
    await listener.close();
    assert.equal(await ask(path), 'another');
    other.close();
  });

  it('tells once that it cannot come back, goes on trying, and comes back', async () => {
    let present = true;
    let failure: Error | undefined;
    const clock = new VirtualClock();
    const told: string[] = [];
    const fake = (): UnixListener => ({ path: '/x', ownsPath: () => present, close: async () => undefined });
    const listener = await keepListening({
      listen: async () => {
        if (failure) throw failure;
        present = true;
        return fake();
      },
      clock,
      onRestored: () => told.push('restored'),
      onLost: (error) => told.push(`lost: ${error instanceof Error ? error.message : ''}`),
      onTaken: () => told.push('taken'),
    });
    present = false;
    failure = new SdsdError('ERR_SDSD_SOCKET', 'read-only file system');
    await clock.advance(5 * SECOND);
    assert.deepEqual(told, ['lost: read-only file system']);
    failure = undefined;
    await clock.advance(SECOND);
    assert.deepEqual(told, ['lost: read-only file system', 'restored']);
    await listener.close();
  });

  it('survives that it cannot even look, as when its directory is closed to it', async () => {
    let failure: Error | undefined = new Error('EACCES: permission denied, lstat');
    const clock = new VirtualClock();
    const told: string[] = [];
    const listener = await keepListening({
      listen: async () => ({
        path: '/x',
        ownsPath: () => {
          if (failure) throw failure;
          return true;
        },
        close: async () => undefined,
      }),
      clock,
      onRestored: () => told.push('restored'),
      onLost: () => told.push('lost'),
      onTaken: () => told.push('taken'),
    });
    await clock.advance(3 * SECOND);
    assert.deepEqual(told, ['lost']);
    failure = undefined;
    await clock.advance(SECOND);
    assert.equal(clock.pending, 1, 'it goes on looking');
    await listener.close();
  });

  it('waits at its end for a return that is under way', async () => {
    let finish: (listener: UnixListener) => void = () => undefined;
    const closed: string[] = [];
    let first = true;
    const clock = new VirtualClock();
    const listenerNamed = (name: string): UnixListener => ({
      path: '/x',
      ownsPath: () => name !== 'gone',
      close: async () => void closed.push(name),
    });
    const listener = await keepListening({
      listen: () => {
        if (first) {
          first = false;
          return Promise.resolve(listenerNamed('gone'));
        }
        return new Promise((resolve) => {
          finish = resolve;
        });
      },
      clock,
      onRestored: () => closed.push('told'),
      onLost: () => undefined,
      onTaken: () => undefined,
    });
    await clock.advance(SECOND);
    const end = listener.close();
    finish(listenerNamed('fresh'));
    await end;
    assert.deepEqual(closed, ['gone', 'fresh']);
  });
});
