import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

/** A child process; `await using` ends it. */
interface Child extends AsyncDisposable {
  /** Asks every 50 ms until the answer is not undefined. Rejects with the end of the log if the process dies before. */
  until<T>(ask: () => Promise<T | undefined>): Promise<T>;
}

const GIVE_UP_AFTER_MS = 15_000;
const KILL_AFTER_MS = 2_000;

function start(name: string, directory: string, command: readonly string[], env: Record<string, string> = {}): Child {
  const [program = '', ...args] = command;
  const logFile = join(directory, `${name}.log`);
  const log = openSync(logFile, 'w');
  // A process group of its own: Ctrl-C reaches this program alone, which then ends all others in order.
  const options = { cwd: directory, env: { PATH: process.env['PATH'], ...env }, detached: true } as const;
  const child = spawn(program, args, { ...options, stdio: ['ignore', log, log] });
  closeSync(log);
  const exited = once(child, 'exit').catch(() => undefined);
  const killNow = (): void => void child.kill('SIGKILL');
  process.once('exit', killNow);
  const isGone = (): boolean => child.pid === undefined || child.exitCode !== null || child.signalCode !== null;
  return {
    async until(ask) {
      const deadline = Date.now() + GIVE_UP_AFTER_MS;
      for (;;) {
        const answer = await ask().catch(() => undefined);
        if (answer !== undefined) return answer;
        if (isGone() || Date.now() > deadline) {
          const tail = (await readFile(logFile, 'utf8')).trim().split('\n').slice(-10).join('\n');
          throw new Error(`${name} ${isGone() ? 'ended' : 'does not get ready'}:\n${tail}`);
        }
        await sleep(50);
      }
    },
    async [Symbol.asyncDispose]() {
      process.removeListener('exit', killNow);
      if (isGone()) return;
      child.kill('SIGTERM');
      const killer = setTimeout(killNow, KILL_AFTER_MS);
      await exited;
      clearTimeout(killer);
    },
  };
}

export interface Sdsd extends AsyncDisposable {
  readonly socket: string;
}

/** Runs `sdsd run` in the directory, from the sources. Resolves when it serves. */
export async function startSdsd(
  directory: string,
  args: readonly string[],
  env: Record<string, string>,
): Promise<Sdsd> {
  const main = fileURLToPath(new URL('../../src/main.ts', import.meta.url));
  const socket = join(directory, 'sds.sock');
  const command = [process.execPath, '--import', import.meta.resolve('tsx'), main, 'run', '--socket', socket, ...args];
  const child = start('sdsd', directory, command, env);
  try {
    await child.until(
      async () => (await readFile(join(directory, 'sdsd.log'), 'utf8')).includes('is serving') || undefined,
    );
  } catch (error) {
    await child[Symbol.asyncDispose]();
    throw error;
  }
  return { socket, [Symbol.asyncDispose]: () => child[Symbol.asyncDispose]() };
}

export interface Envoy extends AsyncDisposable {
  /** What Envoy's admin page answers, as JSON. */
  admin(path: string): Promise<unknown>;
  /** The port that a listener got. */
  port(listener: string): Promise<number>;
}

/** Runs an Envoy. Resolves when it has its secrets and listens. */
export async function startEnvoy(binary: string, name: string, directory: string, bootstrap: object): Promise<Envoy> {
  const config = join(directory, `${name}.json`);
  const addressFile = join(directory, `${name}.admin`);
  await writeFile(config, JSON.stringify(bootstrap));
  const args = ['--config-path', config, '--admin-address-path', addressFile, '--log-level', 'warning'];
  const child = start(name, directory, [binary, ...args, '--concurrency', '1', '--disable-hot-restart']);
  try {
    const address = await child.until(async () => (await readFile(addressFile, 'utf8')) || undefined);
    await child.until(async () => (await fetch(`http://${address}/ready`)).ok || undefined);
    const admin = async (path: string): Promise<unknown> => (await fetch(`http://${address}${path}`)).json();
    return {
      admin,
      async port(listener) {
        const listeners = await (await fetch(`http://${address}/listeners`)).text();
        const line = new RegExp(`^${listener}::.*:(\\d+)$`, 'm').exec(listeners);
        return Number(line?.[1]);
      },
      [Symbol.asyncDispose]: () => child[Symbol.asyncDispose](),
    };
  } catch (error) {
    await child[Symbol.asyncDispose]();
    throw error;
  }
}
