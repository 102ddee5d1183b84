import type { Command } from 'commander';
import { sleep } from '../clock.js';
import { loadClientConfig, parseDuration, settings } from '../config/index.js';
import { messageOf } from '../errors.js';
import { printable } from '../log.js';
import type { CliIo } from './io.js';
import {
  configFileOption,
  configSources,
  flag,
  type Options,
  optionsOf,
  outputOption,
  settingOption,
  text,
  usageError,
} from './options.js';
import type { ReceivedSecret, SdsMethod } from './sds-client.js';

export function addGetCommand(program: Command, io: CliIo): void {
  program
    .command('get')
    .description('Asks an SDS server for a secret as Envoy would, and shows it.')
    .argument('<name>', 'resource name, such as default or ROOTCA')
    .addOption(settingOption(settings.socket))
    .addOption(configFileOption())
    .addOption(outputOption('text', 'pem', 'json'))
    .option('--with-key', 'print the private key too (-o pem: as PKCS#8; -o json: as it is served)')
    .option('--watch', 'print each secret that is pushed, until Ctrl-C (-o json: one line each); outlives the server')
    .option('--delta', 'ask with DeltaSecrets, the incremental variant')
    .option('--fetch', 'ask with FetchSecrets: one answer, or the reason why there is none')
    .option('--timeout <duration>', 'how long the first answer may take', '10s')
    .addHelpText(
      'after',
      `
Works with every SDS server on a Unix socket, not with sdsd alone.

Examples:
  sdsd get default
  sdsd get ROOTCA -o pem > roots.pem
  sdsd get default --watch                       see renewals arrive
  sdsd get default --fetch                       why is there no certificate?
`,
    )
    .action(async (name: string, _options: unknown, command: Command) => {
      const options = optionsOf(command);
      const format = checkedFormat(options);
      const query = { name, method: method(options), timeoutMs: timeout(options), clock: io.clock };
      const { socket } = await loadClientConfig(configSources(options, io));
      const [{ receiveSecrets }, { showSecret }] = await Promise.all([
        import('./sds-client.js'),
        import('./describe-secret.js'),
      ]);
      const show = (secret: ReceivedSecret): string =>
        showSecret(secret, {
          ...{ format, withKey: flag(options, 'withKey'), now: io.clock.now() },
          compact: flag(options, 'watch'),
        });
      const ask = (signal: AbortSignal) => receiveSecrets({ ...query, socket, signal });
      if (flag(options, 'watch')) {
        await watch(ask, show, format === 'text' ? '\n' : '', io);
        return;
      }
      for await (const secret of ask(new AbortController().signal)) {
        io.stdout.write(show(secret));
        break;
      }
    });
}

/** How long it waits before it asks a server again that went away, in ms. */
const RETRY_MS = 1_000;

/** Prints each secret until Ctrl-C. A server that goes away is waited for, once it has given a first secret. */
async function watch(
  ask: (signal: AbortSignal) => AsyncIterable<ReceivedSecret>,
  show: (secret: ReceivedSecret) => string,
  separator: string,
  io: CliIo,
): Promise<void> {
  const { ServerGone } = await import('./sds-client.js');
  const abort = new AbortController();
  const release = io.onSignal('SIGINT', () => abort.abort());
  let last: ReceivedSecret | undefined;
  let waiting = false;
  try {
    while (!abort.signal.aborted) {
      try {
        for await (const secret of ask(abort.signal)) {
          // What a server that is back sends first may be what was shown before it went away.
          const known = waiting && secret.version === last?.version;
          if (waiting) io.stderr.write('sdsd: the server is back\n');
          waiting = false;
          if (!known) io.stdout.write(last ? separator + show(secret) : show(secret));
          last = secret;
          await io.stdout.flush();
        }
      } catch (error) {
        if (!last || !(error instanceof ServerGone)) throw error;
        if (!waiting) io.stderr.write(`sdsd: ${printable(error.message)}; waiting for it until Ctrl-C\n`);
        waiting = true;
        await sleep(io.clock, RETRY_MS, abort.signal).catch(() => undefined);
      }
    }
  } finally {
    release();
  }
}

function checkedFormat(options: Options): 'text' | 'pem' | 'json' {
  const value = text(options, 'output');
  const format = value === 'pem' || value === 'json' ? value : 'text';
  if (format === 'text' && flag(options, 'withKey')) {
    throw usageError('--with-key shows nothing in the text output', 'add -o pem or -o json');
  }
  return format;
}

function method(options: Options): SdsMethod {
  const fetch = flag(options, 'fetch');
  if (fetch && flag(options, 'delta')) throw usageError('--fetch and --delta exclude each other', 'leave one out');
  if (fetch && flag(options, 'watch'))
    throw usageError('--fetch gets one answer, so there is nothing to watch', 'leave out --fetch');
  return fetch ? 'fetch' : flag(options, 'delta') ? 'delta' : 'sotw';
}

function timeout(options: Options): number {
  const value = text(options, 'timeout') ?? '';
  try {
    const ms = parseDuration(value);
    if (ms > 0) return ms;
  } catch (error) {
    throw usageError(`--timeout ${value} cannot be used: ${messageOf(error)}`, 'write a duration such as 10s or 1m');
  }
  throw usageError(`--timeout ${value} cannot be used: it is not longer than 0`, 'write a duration such as 10s or 1m');
}
