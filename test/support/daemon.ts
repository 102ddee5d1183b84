import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtemp, realpath, rm } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { type ControlClient, controlClient } from '../../src/admin/index.js';

/** A working directory for a daemon, with the paths that it uses there by default. `await using` removes it. */
export interface Workplace extends AsyncDisposable {
  readonly directory: string;
  /** Where Envoy asks for secrets. */
  readonly socket: string;
  readonly controlSocket: string;
}

export async function createWorkplace(): Promise<Workplace> {
  const directory = await mkdtemp(join(await realpath(tmpdir()), 'sdsd-'));
  return {
    directory,
    socket: join(directory, 'var/run/secrets/workload-spiffe-uds/socket'),
    controlSocket: join(directory, 'var/run/sdsd/admin.sock'),
    [Symbol.asyncDispose]: () => rm(directory, { recursive: true, force: true }),
  };
}

export interface DaemonOptions {
  /** Arguments after `sdsd run`. */
  readonly args?: readonly string[];
  /** The whole environment besides PATH: nothing of the machine's own gets in. */
  readonly env?: Readonly<Record<string, string>>;
}

export interface DaemonExit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

/** A running `sdsd run`, as a process of its own. `await using` stops it. */
export interface Daemon extends AsyncDisposable {
  readonly pid: number;
  readonly control: ControlClient;
  /** What it wrote to stdout and stderr so far. */
  log(): string;
  /** SIGTERM, and SIGKILL five seconds later. Resolves when it is gone. */
  stop(): Promise<DaemonExit>;
  /** SIGKILL. */
  kill(): Promise<DaemonExit>;
}

const READY = /^sdsd \S+ is serving secrets$/m;
const READY_WITHIN_MS = 15_000;
const KILL_AFTER_MS = 5_000;

/** Starts the daemon, and resolves when it says that it serves. Rejects with its log if it ends before, or takes too long. */
export async function startDaemon(place: Workplace, options: DaemonOptions = {}): Promise<Daemon> {
  const child = spawn(process.execPath, [...mainModule(), 'run', ...(options.args ?? [])], {
    cwd: place.directory,
    env: { PATH: process.env['PATH'], ...options.env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let output = '';
  const exited = exitOf(child);
  const serving = new Promise<void>((resolve) => {
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding('utf8').on('data', (text: string) => {
        output += text;
        if (READY.test(output)) resolve();
      });
    }
  });
  const killNow = (): void => void child.kill('SIGKILL');
  process.once('exit', killNow);
  const forget = (): void => void process.removeListener('exit', killNow);
  exited.then(forget, forget);

  const stop = async (): Promise<DaemonExit> => {
    child.kill('SIGTERM');
    const killer = setTimeout(killNow, KILL_AFTER_MS);
    try {
      return await exited;
    } finally {
      clearTimeout(killer);
    }
  };
  await readyOrStopped(serving, exited, stop, () => output);
  return {
    pid: child.pid ?? 0,
    control: controlClient(place.controlSocket),
    log: () => output,
    stop,
    kill: async () => {
      killNow();
      return exited;
    },
    [Symbol.asyncDispose]: async () => {
      await stop();
    },
  };
}

async function readyOrStopped(
  serving: Promise<void>,
  exited: Promise<DaemonExit>,
  stop: () => Promise<DaemonExit>,
  log: () => string,
): Promise<void> {
  let late: NodeJS.Timeout | undefined;
  const deadline = new Promise<'late'>((resolve) => {
    late = setTimeout(resolve, READY_WITHIN_MS, 'late');
  });
  try {
    const first = await Promise.race([serving.then(() => 'serving' as const), exited, deadline]);
    if (first === 'serving') return;
    if (first === 'late') await stop();
    throw new Error(
      `sdsd ${first === 'late' ? 'does not get ready' : `ended (${first.code ?? first.signal})`}:\n${log()}`,
    );
  } finally {
    clearTimeout(late);
  }
}

/** The sources, or what SDSD_TEST_MAIN names: a built `main.js`. */
export function mainModule(): readonly string[] {
  const built = process.env['SDSD_TEST_MAIN'];
  if (built) return [resolve(built)];
  const tsx = pathToFileURL(createRequire(import.meta.url).resolve('tsx')).href;
  return ['--import', tsx, fileURLToPath(new URL('../../src/main.ts', import.meta.url))];
}

function exitOf(child: ChildProcess): Promise<DaemonExit> {
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('exit', (code, signal) => resolve({ code, signal }));
  });
}
