import { resolve } from 'node:path';
import type { Command } from 'commander';
import { loadClientConfig, settings } from '../config/index.js';
import { addHelpCommand } from './help.js';
import type { CliIo } from './io.js';
import { configFileOption, configSources, flag, optionsOf, outPath, settingOption } from './options.js';

export function addCaCommand(program: Command, io: CliIo): void {
  const group = program.command('ca').description('Commands about the CA of the running daemon.');
  group
    .command('export')
    .description('Prints the roots that peers must trust, in PEM.')
    .option('--out <file>', 'write to this file, in a directory that exists; - is the standard output')
    .option('--force', 'overwrite the file if it exists')
    .addOption(settingOption(settings.controlSocket))
    .addOption(configFileOption())
    .addHelpText('after', '\nExamples:\n  sdsd ca export > roots.pem\n  sdsd ca export --out roots.pem\n')
    .action(async (_options: unknown, command: Command) => {
      const options = optionsOf(command);
      const out = outPath(options);
      const { controlSocket } = await loadClientConfig(configSources(options, io));
      const { controlClient } = await import('../admin/control-client.js');
      const { pem } = await controlClient(controlSocket).roots();
      if (out === undefined || out === '-') {
        io.stdout.write(pem);
        return;
      }
      const { writeFiles } = await import('./write-files.js');
      await writeFiles([{ path: resolve(io.cwd, out), content: Buffer.from(pem), mode: 0o644 }], {
        overwrite: flag(options, 'force'),
      });
    });
  addHelpCommand(group, io);
}
