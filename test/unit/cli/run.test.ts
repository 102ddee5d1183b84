import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ReaderGone } from '../../../src/cli/io.js';
import { type CreateDaemon, type RunningDaemon, runDaemon } from '../../../src/cli/run.js';
import { loadConfig } from '../../../src/config/index.js';
import { SdsdError } from '../../../src/errors.js';
import { VirtualClock } from '../../../src/testing/virtual-clock.js';
import { fakeDaemonControl, STATUS } from '../admin/fake-daemon-control.js';
import { type FakeIo, fakeIo } from './fake-io.js';

interface Running {
  readonly io: FakeIo;
  readonly events: string[];
  /** Resolves when the daemon has told where it is. */
  readonly greeted: Promise<string>;
  readonly done: Promise<void>;
}

const NEVER = new Promise<never>(() => undefined);

async function run(
  {
    flags = {},
    control = fakeDaemonControl(),
    ready = Promise.resolve(),
    failed = NEVER,
    quiet = false,
    clock = new VirtualClock(),
  }: {
    flags?: Readonly<Record<string, string>>;
    control?: RunningDaemon['control'];
    ready?: Promise<unknown>;
    failed?: Promise<Error>;
    quiet?: boolean;
    clock?: VirtualClock;
  } = {},
  start?: CreateDaemon,
): Promise<Running> {
  let greet: (text: string) => void = () => undefined;
  const greeted = new Promise<string>((resolve) => {
    greet = resolve;
  });
  const io = fakeIo({ clock, onOut: (text) => greet(text) });
  const events: string[] = [];
  const close = async (): Promise<void> => void events.push('closed');
  const config = await loadConfig({ flags, env: {}, cwd: io.cwd });
  const done = runDaemon(config, start ?? (async () => ({ control, ready, failed, close })), io, quiet);
  return { io, events, greeted, done };
}

test('tells where it is, who it is, when it renews, and what shows that it works', async () => {
  const { io, greeted, done } = await run({ flags: { socket: '/run/my sds.sock' } });
  assert.equal(
    await greeted,
    `sdsd 1.2.3 is serving secrets
  socket       /run/my sds.sock
  identity     spiffe://cluster.local/ns/default/sa/default
  names        default, ROOTCA
  CA           local CA
  next renewal 2030-01-01T12:00:00Z (in 12h)
See it work, in another terminal:  npx sdsd get default --socket '/run/my sds.sock'
`,
  );
  io.signal('SIGTERM');
  await done;
});

test('leaves the socket out of that command where it is found by itself', async () => {
  const { io, greeted, done } = await run();
  assert.match(await greeted, /npx sdsd get default\n$/);
  io.signal('SIGINT');
  await done;
});

test('closes the daemon at the first signal and ends at once at the second', async () => {
  for (const [signal, code] of [
    ['SIGTERM', 143],
    ['SIGINT', 130],
  ] as const) {
    const { io, events, greeted, done } = await run();
    await greeted;
    io.signal(signal);
    assert.deepEqual(io.exits, []);
    io.signal(signal);
    assert.deepEqual(io.exits, [code]);
    await done;
    assert.deepEqual(events, ['closed']);
    assert.equal(io.signal(signal), false, 'no handler stays behind');
  }
});

test('ends in order at a signal that comes while it starts', async () => {
  const events: string[] = [];
  const { io, done } = await run({}, async () => {
    await new Promise(setImmediate);
    io.signal('SIGTERM');
    return {
      control: fakeDaemonControl(),
      ready: Promise.resolve(),
      failed: NEVER,
      close: async () => void events.push('closed'),
    };
  });
  await done;
  assert.deepEqual(events, ['closed']);
});

test('renews at SIGUSR1, which would otherwise open the inspector, and says so', async () => {
  const control = fakeDaemonControl();
  const { io, greeted, done } = await run({ control });
  await greeted;
  io.signal('SIGUSR1');
  io.signal('SIGHUP');
  await new Promise(setImmediate);
  assert.deepEqual(control.calls, [['rotate', undefined]]);
  assert.match(io.err(), /SIGUSR1: certificates renewed names=default/);
  assert.match(io.err(), /SIGHUP: there is nothing to reload/);
  io.signal('SIGTERM');
  await done;
});

test('goes on when renewing at SIGUSR1 fails', async () => {
  const control = fakeDaemonControl({
    rotate: async () => {
      throw new SdsdError('ERR_SDSD_CA', 'it is down');
    },
  });
  const { io, events, greeted, done } = await run({ control });
  await greeted;
  io.signal('SIGUSR1');
  await new Promise(setImmediate);
  assert.match(io.err(), /could not be renewed error="ERR_SDSD_CA: it is down"/);
  assert.deepEqual(events, []);
  io.signal('SIGTERM');
  await done;
});

test('tells where it is even if no certificate comes, and why none does', async () => {
  const clock = new VirtualClock();
  const secrets = STATUS.secrets.map((secret) => ({ ...secret, renewAt: null }));
  const control = fakeDaemonControl({ status: () => ({ ...STATUS, secrets }) });
  const { io, greeted, done } = await run({ control, clock, ready: new Promise(() => undefined) });
  await clock.advance(1_999);
  assert.equal(io.out(), '');
  await clock.advance(1);
  assert.match(await greeted, /next renewal no certificate yet: the disk is full\n/);
  io.signal('SIGTERM');
  await done;
  assert.equal(clock.pending, 0);
});

test('ends in order, and with the reason, when the daemon can serve no longer', async () => {
  const taken = new SdsdError('ERR_SDSD_SOCKET_IN_USE', 'another server answers on /run/sds.sock');
  const { events, done } = await run({ failed: Promise.resolve(taken) });
  await assert.rejects(done, taken);
  assert.deepEqual(events, ['closed']);
});

test('serves on when nobody can read where it is, and says so in the log if that was no choice', async () => {
  const full = new SdsdError('ERR_SDSD_OUTPUT', 'it is full');
  for (const [reason, logged] of [
    [full, /warn +serving, but cannot print where error="ERR_SDSD_OUTPUT: it is full"/],
    [new ReaderGone('gone'), /^[^!]*$/],
  ] as const) {
    const io = fakeIo({ clock: new VirtualClock(), flush: async () => Promise.reject(reason) });
    const config = await loadConfig({ flags: {}, env: {}, cwd: io.cwd });
    const parts = {
      control: fakeDaemonControl(),
      ready: Promise.resolve(),
      failed: NEVER,
      close: async () => undefined,
    };
    const done = runDaemon(config, async () => parts, io, false);
    await new Promise((resolve) => setTimeout(resolve, 20));
    assert.match(io.err(), logged);
    assert.equal(io.signal('SIGTERM'), true, 'it still runs');
    await done;
  }
});

test('prints nothing when it shall be quiet', async () => {
  const { io, done } = await run({ quiet: true });
  await new Promise(setImmediate);
  io.signal('SIGTERM');
  await done;
  assert.equal(io.out(), '');
});

test('fails with the error of a daemon that cannot start, and keeps no handler', async () => {
  const { io, done } = await run({}, async () => {
    throw new SdsdError('ERR_SDSD_SOCKET_IN_USE', 'taken');
  });
  await assert.rejects(done, { code: 'ERR_SDSD_SOCKET_IN_USE' });
  assert.equal(io.signal('SIGTERM'), false);
});
