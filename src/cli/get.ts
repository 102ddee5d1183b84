import type { Command } from 'commander';
import { loadClientConfig, parseDuration, settings } from '../config/index.js';
import { messageOf } from '../errors.js';
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
import type { SdsMethod } from './sds-client.js';

export function addGetCommand(program: Command, io: CliIo): void {
  program
    .command('get')
    .description('Asks an SDS server for a secret as Envoy would, and shows it.')
    .argument('<name>', 'resource name, such as default or ROOTCA')
    .addOption(settingOption(settings.socket))
    .addOption(configFileOption())
    .addOption(outputOption('text', 'pem', 'json'))
    .option('--with-key', 'print the private key too (with -o pem or json)')
    .option('--watch', 'print each secret that is pushed, until Ctrl-C')
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
      const abort = new AbortController();
      const release = flag(options, 'watch') ? io.onSignal('SIGINT', () => abort.abort()) : undefined;
      let first = true;
      try {
        for await (const secret of receiveSecrets({ ...query, socket, signal: abort.signal })) {
          const shown = showSecret(secret, { format, withKey: flag(options, 'withKey'), now: io.clock.now() });
          io.stdout.write(first || format !== 'text' ? shown : `\n${shown}`);
          first = false;
          if (!flag(options, 'watch')) break;
        }
      } finally {
        release?.();
      }
    });
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
  throw usageError(`--timeout ${value} cannot be used`, 'write a duration such as 10s or 1m');
}
