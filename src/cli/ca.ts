import { resolve } from 'node:path';
import type { Command } from 'commander';
import { loadClientConfig, settings } from '../config/index.js';
import type { CliIo } from './io.js';
import { configFileOption, configSources, flag, optionsOf, settingOption, text } from './options.js';

export function addCaCommand(program: Command, io: CliIo): void {
  program
    .command('ca')
    .description('Commands about the CA of the running daemon.')
    .command('export')
    .description('Prints the roots that peers must trust, in PEM.')
    .option('--out <file>', 'write to this file instead')
    .option('--force', 'overwrite the file')
    .addOption(settingOption(settings.controlSocket))
    .addOption(configFileOption())
    .addHelpText('after', '\nExamples:\n  sdsd ca export > roots.pem\n  sdsd ca export --out roots.pem\n')
    .action(async (_options: unknown, command: Command) => {
      const options = optionsOf(command);
      const { controlSocket } = await loadClientConfig(configSources(options, io));
      const { controlClient } = await import('../admin/control-client.js');
      const { pem } = await controlClient(controlSocket).roots();
      const out = text(options, 'out');
      if (out === undefined) {
        io.stdout.write(pem);
        return;
      }
      const { writeFiles } = await import('./write-files.js');
      await writeFiles(
        [{ path: resolve(io.cwd, out), content: Buffer.from(pem), mode: 0o644 }],
        flag(options, 'force'),
      );
    });
}
