import type { Command } from 'commander';
import type { DaemonControl, DaemonStatus } from '../admin/daemon-control.js';
import { type Clock, isoSeconds, sleep } from '../clock.js';
import {
  type Config,
  defaultText,
  EXAMPLE_FILE,
  LIST_SYNTAX,
  loadClientConfig,
  loadConfig,
  settingList,
} from '../config/index.js';
import { createLogger, type Logger, printable } from '../log.js';
import { span } from './format.js';
import { type CliIo, mayColor, ReaderGone, shellWord } from './io.js';
import { configFileOption, configSources, flag, optionsOf, settingOption } from './options.js';

/** What this command needs of the daemon. */
export type CreateDaemon = (options: {
  readonly config: Config;
  readonly log: Logger;
  readonly clock: Clock;
}) => Promise<RunningDaemon>;

export interface RunningDaemon {
  readonly control: Pick<DaemonControl, 'status' | 'rotate'>;
  /** Resolves as soon as there is a workload certificate. */
  readonly ready: Promise<unknown>;
  /** Resolves if it can serve no longer, with the reason. */
  readonly failed: Promise<Error>;
  /** Ends the daemon in order. */
  close(): Promise<void>;
}

export function addRunCommand(program: Command, io: CliIo): void {
  const command = program.command('run').description('Runs the daemon until it is told to end (SIGTERM, Ctrl-C).');
  for (const setting of settingList) {
    if (setting.flag !== undefined) command.addOption(settingOption(setting));
  }
  command
    .addOption(configFileOption())
    .addHelpText('after', () => HELP + environmentHelp())
    .action(async (_options: unknown, self: Command) => {
      const options = optionsOf(self);
      const config = await loadConfig(configSources(options, io));
      const start: CreateDaemon = async (parts) => {
        const { createDaemon } = await import('../daemon.js');
        return createDaemon(parts);
      };
      await runDaemon(config, start, io, flag(options, 'quiet'));
    });
}

const HELP = `
Examples:
  sdsd run                                             everything below the working directory, own CA
  sdsd run --socket /run/sdsd/sds.sock --secret-ttl 1h
  sdsd run --identity web=spiffe://cluster.local/ns/shop/sa/web
  CA_PROVIDER=local sdsd run                           in Kubernetes, where the own CA must be asked for
  sdsd run --config sdsd.yaml

A file for --config:
${EXAMPLE_FILE.replace(/^(?=.)/gm, '  ')}
Signals: SIGTERM and SIGINT end the daemon, a second one at once; SIGUSR1 renews all certificates (\`sdsd rotate\` does it too, and
is to be preferred).
`;

/** Every variable of the settings table, with what it means. */
function environmentHelp(): string {
  const entries = settingList.map((setting) => {
    const also = [setting.flag, `${setting.key} in the file`].filter((name) => name !== undefined).join(', ');
    return `  ${setting.variables.join(', ')} (${also})
      ${setting.doc}
      Allowed: ${setting.allowed}
      ${setting.kind === 'list' ? `${LIST_SYNTAX}\n      ` : ''}Default: ${defaultText(setting)}
`;
  });
  return `\nEnvironment variables (a flag comes before its variable, a variable before the file of --config):\n${entries.join('')}`;
}

/** How many names the first words list. */
const MAX_NAMES = 10;

/** How long the first words wait for the first certificate, to tell of it, in ms. */
const FIRST_CERTIFICATE_MS = 2_000;

/** Starts a daemon, tells where it is, and resolves when it was told to end and has. Rejects when it cannot start. */
export async function runDaemon(config: Config, start: CreateDaemon, io: CliIo, quiet: boolean): Promise<void> {
  const log = createLogger({
    level: config.logLevel,
    stream: io.stderr,
    clock: io.clock,
    color: mayColor(io, io.stderr),
  });
  const signals = handleSignals(io, log);
  try {
    const settled = new AbortController();
    const daemon = await start({ config, log, clock: io.clock });
    try {
      signals.daemon = daemon;
      // A CA that is down must not keep the daemon from saying where it is.
      await Promise.race([
        daemon.ready,
        sleep(io.clock, FIRST_CERTIFICATE_MS, settled.signal).catch(() => undefined),
        signals.stop,
      ]);
      settled.abort();
      if (!quiet) await Promise.race([greet(config, daemon.control.status(), io, log), signals.stop]);
      const failure = await Promise.race([signals.stop, daemon.failed]);
      if (failure) throw failure;
    } finally {
      await daemon.close();
    }
  } finally {
    signals.release();
  }
}

interface Signals {
  /** Resolves at the first signal that asks for the end. */
  readonly stop: Promise<void>;
  daemon: RunningDaemon | undefined;
  release(): void;
}

function handleSignals(io: CliIo, log: Logger): Signals {
  let stopping = false;
  let stop: () => void = () => undefined;
  const end = (signal: NodeJS.Signals, code: number) => (): void => {
    if (stopping) {
      io.exit(code);
      return;
    }
    stopping = true;
    log.info(`${signal}: shutting down; a second one ends at once`);
    stop();
  };
  const undo = [
    io.onSignal('SIGTERM', end('SIGTERM', 143)),
    io.onSignal('SIGINT', end('SIGINT', 130)),
    io.onSignal('SIGHUP', () =>
      log.info('SIGHUP: there is nothing to reload; restart sdsd to read its settings again'),
    ),
    // Without a handler Node would open its inspector, and with it every key in memory.
    io.onSignal('SIGUSR1', () => void rotateNow(signals.daemon, log)),
  ];
  const signals: Signals = {
    stop: new Promise((resolve) => {
      stop = resolve;
    }),
    daemon: undefined,
    release: () => {
      for (const release of undo) release();
    },
  };
  return signals;
}

async function rotateNow(daemon: RunningDaemon | undefined, log: Logger): Promise<void> {
  if (!daemon) {
    log.info('SIGUSR1: nothing to renew yet, the daemon is starting');
    return;
  }
  try {
    const { rotated } = await daemon.control.rotate();
    log.info('SIGUSR1: certificates renewed', { names: rotated.map(({ name }) => name).join(',') });
  } catch (error) {
    log.error('SIGUSR1: certificates could not be renewed', { error });
  }
}

/** A daemon serves Envoy, whether or not somebody reads what it says. */
async function greet(config: Config, status: DaemonStatus, io: CliIo, log: Logger): Promise<void> {
  io.stdout.write(await greeting(config, status, io));
  try {
    await io.stdout.flush();
  } catch (error) {
    if (!(error instanceof ReaderGone)) log.warn('serving, but cannot print where', { error });
  }
}

/** What Envoy may ask for; the first few of many. */
function namesLine(status: DaemonStatus): string {
  const names = status.secrets.map(({ name }) => name);
  const more = names.length > MAX_NAMES ? `, and ${names.length - MAX_NAMES} more: see sdsd status` : '';
  return `  names        ${printable(names.slice(0, MAX_NAMES).join(', '))}${more}`;
}

async function greeting(config: Config, status: DaemonStatus, io: CliIo): Promise<string> {
  const own = status.secrets.find(({ name }) => name === 'default');
  const renewAt = own?.renewAt ? Date.parse(own.renewAt) : Number.NaN;
  const renewal = Number.isNaN(renewAt)
    ? `no certificate yet${own?.lastError ? `: ${own.lastError}` : ''}`
    : `${isoSeconds(renewAt)} (in ${span(renewAt - io.clock.now())})`;
  const { socket: defaultSocket } = await loadClientConfig({ flags: {}, env: {}, cwd: io.cwd });
  const where = config.socket === defaultSocket ? '' : ` --socket ${shellWord(config.socket)}`;
  return [
    `sdsd ${status.version} is serving secrets`,
    `  socket       ${config.socket}`,
    `  identity     ${own?.identity ?? config.identity.spiffeId}`,
    namesLine(status),
    `  CA           ${printable(status.ca.description)}`,
    `  next renewal ${printable(renewal)}`,
    `See it work, in another terminal:  ${io.command} get default${where}`,
    '',
  ].join('\n');
}
