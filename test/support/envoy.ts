import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync, readFileSync } from 'node:fs';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { envoyBinary, newestEnvoy, oldestEnvoy } from '../../scripts/fetch-envoy.mjs';
import { normalSerial } from './handshakes.js';
import { dig, digList, digString } from './json.js';
import { Fatal, until } from './until.js';

/** An Envoy to test with. */
export interface EnvoyRelease {
  readonly version: string;
  readonly binary: string;
}

/**
 * The oldest and the newest supported Envoy, or the reason why there is none, as node:test's `skip` takes it.
 * Rejects instead if CI=true: there the tests with a real Envoy must run.
 */
export async function envoyReleases(): Promise<{
  readonly releases: readonly EnvoyRelease[];
  readonly skip: string | false;
}> {
  const found = new Map<string, EnvoyRelease>();
  for (const version of [oldestEnvoy, newestEnvoy]) {
    const { path, reason } = await envoyBinary(version);
    if (path !== undefined) {
      // Both are the same one if ENVOY_BIN is set.
      if (!found.has(path))
        found.set(path, { version: process.env['ENVOY_BIN'] ? 'ENVOY_BIN' : version, binary: path });
    } else if (process.env['CI'] === 'true') {
      throw new Error(reason);
    } else {
      return { releases: [], skip: reason };
    }
  }
  return { releases: [...found.values()], skip: false };
}

/** Runs `envoy --mode validate`; resolves to what Envoy says against the configuration, or to undefined if it is content. */
export async function validateEnvoyConfig(binary: string, config: string): Promise<string | undefined> {
  const directory = await mkdtemp(join(tmpdir(), 'envoy-'));
  try {
    const path = join(directory, 'envoy.yaml');
    await writeFile(path, config);
    const child = spawn(binary, ['--mode', 'validate', '--log-level', 'warning', '--config-path', path]);
    let said = '';
    for (const stream of [child.stdout, child.stderr]) {
      stream.on('data', (chunk: Buffer) => {
        said += chunk.toString();
      });
    }
    await once(child, 'close');
    return child.exitCode === 0 && !/\[(?:warning|error|critical)\]/.test(said) ? undefined : said;
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

export interface EnvoyOptions {
  readonly binary: string;
  /** The bootstrap: an object, or YAML text. Its admin port should be 0. */
  readonly bootstrap: object | string;
  /** Arguments besides those of this harness, such as `['--component-log-level', 'config:debug']`. */
  readonly args?: readonly string[];
}

export interface EnvoyCertificate {
  /** Lower-case hexadecimal without leading zeros. */
  readonly serial: string;
  readonly uris: readonly string[];
  /** RFC 3339. */
  readonly validFrom: string;
  /** RFC 3339. */
  readonly expiration: string;
}

export interface EnvoySecret {
  readonly name: string;
  readonly versionInfo: string;
  readonly state: 'active' | 'warming';
}

export interface EnvoyExit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

/** A running Envoy. `await using` stops it. */
export interface Envoy extends AsyncDisposable {
  /** The JSON that the admin page gives at this path. Rejects for other answers than 200. */
  admin(path: string): Promise<unknown>;
  /** The port on which a listener is bound. */
  listenerPort(name: string): Promise<number>;
  /** True once every listener has what it waits for. */
  ready(): Promise<boolean>;
  untilReady(timeoutMs?: number): Promise<void>;
  /** The certificates and roots in use, each once. */
  certs(): Promise<{ readonly leaves: readonly EnvoyCertificate[]; readonly roots: readonly EnvoyCertificate[] }>;
  /** The counters and gauges whose names match. */
  stats(filter: RegExp): Promise<ReadonlyMap<string, number>>;
  /** One counter or gauge; 0 as long as Envoy has none of that name. */
  stat(name: string): Promise<number>;
  configDumpSecrets(): Promise<readonly EnvoySecret[]>;
  log(): string;
  /** Stands still from now on, with all its connections, until `resume`. */
  pause(): void;
  resume(): void;
  /** SIGTERM, and SIGKILL two seconds later. Resolves when it is gone; its log can still be read. */
  stop(): Promise<EnvoyExit>;
}

const KILL_AFTER_MS = 2_000;

/** Starts an Envoy, and resolves when its admin page answers. Any number of them run side by side. */
export async function startEnvoy(options: EnvoyOptions): Promise<Envoy> {
  const directory = await mkdtemp(join(tmpdir(), 'envoy-'));
  const config = join(directory, 'envoy.yaml');
  const adminAddress = join(directory, 'admin-address');
  const logFile = join(directory, 'log');
  const { bootstrap } = options;
  await writeFile(config, typeof bootstrap === 'string' ? bootstrap : JSON.stringify(bootstrap));
  const output = openSync(logFile, 'w');
  const child = spawn(
    options.binary,
    [
      ...['--config-path', config, '--admin-address-path', adminAddress],
      // Hot restart is what makes Envoys on one machine claim ids in shared memory.
      ...['--concurrency', '1', '--disable-hot-restart', '--drain-time-s', '1', '--log-level', 'warning'],
      ...(options.args ?? []),
    ],
    { stdio: ['ignore', output, output] },
  );
  closeSync(output);
  const exited = exitOf(child);
  const killNow = (): void => void child.kill('SIGKILL');
  process.once('exit', killNow);
  let finalLog: string | undefined;
  const log = (): string => finalLog ?? readFileSync(logFile, 'utf8');

  const pause = (): void => void child.kill('SIGSTOP');
  const resume = (): void => void child.kill('SIGCONT');
  const stop = async (): Promise<EnvoyExit> => {
    child.kill('SIGTERM');
    resume();
    const killer = setTimeout(killNow, KILL_AFTER_MS);
    const exit = await exited;
    clearTimeout(killer);
    process.removeListener('exit', killNow);
    finalLog ??= log();
    await rm(directory, { recursive: true, force: true });
    return exit;
  };

  try {
    const address = await until('Envoy tells the address of its admin page', async () => {
      if (child.exitCode !== null || child.signalCode !== null) throw new Fatal(`Envoy does not start:\n${log()}`);
      const text = await readFile(adminAddress, 'utf8');
      return text.includes(':') && text;
    });
    const envoy = running(`http://${address}`, { log, pause, resume, stop });
    await until('Envoy answers on its admin page', async () => (await envoy.admin('/server_info')) !== undefined);
    return envoy;
  } catch (error) {
    await stop();
    throw error;
  }
}

function exitOf(child: ChildProcess): Promise<EnvoyExit> {
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('exit', (code, signal) => resolve({ code, signal }));
  });
}

function running(url: string, life: Pick<Envoy, 'log' | 'pause' | 'resume' | 'stop'>): Envoy {
  const admin = async (path: string): Promise<unknown> => {
    const response = await fetch(`${url}${path}`);
    const text = await response.text();
    if (!response.ok) throw new Error(`Envoy's admin page answers ${response.status} to ${path}: ${text}`);
    return JSON.parse(text);
  };
  const ready = async (): Promise<boolean> => {
    const response = await fetch(`${url}/ready`);
    await response.arrayBuffer();
    return response.status === 200;
  };
  const stats = async (filter: RegExp): Promise<ReadonlyMap<string, number>> => {
    const answer = await admin(`/stats?format=json&filter=${encodeURIComponent(filter.source)}`);
    return new Map(
      digList(answer, 'stats').flatMap((stat) => {
        const [name, value] = [dig(stat, 'name'), dig(stat, 'value')];
        return typeof name === 'string' && typeof value === 'number' ? [[name, value] as const] : [];
      }),
    );
  };
  return {
    ...life,
    admin,
    ready,
    stats,
    untilReady: async (timeoutMs) => {
      await until('Envoy is ready', ready, timeoutMs);
    },
    stat: async (name) => (await stats(new RegExp(`^${name.replaceAll('.', '\\.')}$`))).get(name) ?? 0,
    listenerPort: async (name) => {
      const listeners = digList(await admin('/listeners?format=json'), 'listener_statuses');
      const listener = listeners.find((candidate) => dig(candidate, 'name') === name);
      const port = dig(listener, 'local_address', 'socket_address', 'port_value');
      if (typeof port !== 'number') throw new Error(`Envoy has no listener ${name}: ${JSON.stringify(listeners)}`);
      return port;
    },
    certs: async () => {
      const all = digList(await admin('/certs'), 'certificates');
      return {
        leaves: certificates(all.flatMap((entry) => digList(entry, 'cert_chain'))),
        roots: certificates(all.flatMap((entry) => digList(entry, 'ca_cert'))),
      };
    },
    configDumpSecrets: async () => {
      const dump = await admin('/config_dump?resource=dynamic_active_secrets');
      const warming = await admin('/config_dump?resource=dynamic_warming_secrets');
      return [...secrets(dump, 'active'), ...secrets(warming, 'warming')];
    },
    [Symbol.asyncDispose]: async () => {
      await life.stop();
    },
  };
}

function certificates(entries: readonly unknown[]): readonly EnvoyCertificate[] {
  const bySerial = new Map(
    entries.map((entry) => {
      const serial = normalSerial(digString(entry, 'serial_number'));
      const names = digList(entry, 'subject_alt_names').map((name) => dig(name, 'uri'));
      const uris = names.filter((uri) => typeof uri === 'string');
      const validFrom = digString(entry, 'valid_from');
      return [serial, { serial, uris, validFrom, expiration: digString(entry, 'expiration_time') }] as const;
    }),
  );
  return [...bySerial.values()];
}

function secrets(dump: unknown, state: EnvoySecret['state']): readonly EnvoySecret[] {
  return digList(dump, 'configs').map((entry) => {
    const versionInfo = dig(entry, 'version_info');
    return { name: digString(entry, 'name'), versionInfo: typeof versionInfo === 'string' ? versionInfo : '', state };
  });
}
