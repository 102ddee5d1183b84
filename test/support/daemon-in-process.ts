import type { SecretStatus } from '../../src/admin/index.js';
import { systemClock } from '../../src/clock.js';
import { loadConfig } from '../../src/config/index.js';
import { createDaemon, type Daemon } from '../../src/daemon.js';
import { createLogger } from '../../src/log.js';
import type { TestCa } from '../../src/testing/test-ca.js';
import type { Workplace } from './daemon.js';

export interface LocalDaemonOptions {
  readonly ca: TestCa;
  readonly env?: Readonly<Record<string, string>>;
}

/** A daemon in this process. `await using` closes it, and with it its CA. */
export interface LocalDaemon extends Daemon, AsyncDisposable {
  log(): string;
  /** What status says of the name `default`. */
  workload(): SecretStatus;
}

/** Starts a daemon over a CA that fails on command; resolves when it serves, with a certificate or not yet. */
export async function startDaemonInProcess(
  place: Workplace,
  { ca, env = {} }: LocalDaemonOptions,
): Promise<LocalDaemon> {
  const config = await loadConfig({ flags: {}, env, cwd: place.directory });
  let output = '';
  const stream = {
    write: (text: string): void => {
      output += text;
    },
  };
  const log = createLogger({ level: 'debug', stream, clock: systemClock, color: false });
  const daemon = await createDaemon({ config, log, ca });
  return {
    ...daemon,
    log: () => output,
    workload: () => {
      const found = daemon.control.status().secrets.find(({ name }) => name === 'default');
      if (!found) throw new Error('status does not tell of the workload certificate');
      return found;
    },
    [Symbol.asyncDispose]: () => daemon.close(),
  };
}
