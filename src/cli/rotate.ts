import type { Command } from 'commander';
import { isoSeconds } from '../clock.js';
import { loadClientConfig, settings } from '../config/index.js';
import { json, table } from './format.js';
import type { CliIo } from './io.js';
import { configFileOption, configSources, flag, optionsOf, outputOption, settingOption, text } from './options.js';

export function addRotateCommand(program: Command, io: CliIo): void {
  program
    .command('rotate')
    .description('Has the running daemon renew its certificates now, and push them to Envoy.')
    .argument('[name]', 'resource name; without it, all certificates')
    .addOption(settingOption(settings.controlSocket))
    .addOption(configFileOption())
    .addOption(outputOption('text', 'json'))
    .addHelpText('after', '\nExamples:\n  sdsd rotate\n  sdsd rotate default\n')
    .action(async (name: string | undefined, _options: unknown, command: Command) => {
      const options = optionsOf(command);
      const { controlSocket } = await loadClientConfig(configSources(options, io));
      const { controlClient } = await import('../admin/control-client.js');
      const result = await controlClient(controlSocket).rotate(name);
      if (flag(options, 'quiet')) return;
      const rotated = result.rotated.map((one) => ({ ...one, notAfter: isoSeconds(Date.parse(one.notAfter)) }));
      const rows = rotated.map((one) => [one.name, one.serialNumber, one.notAfter]);
      io.stdout.write(
        text(options, 'output') === 'json' ? json({ rotated }) : table(['NAME', 'NEW SERIAL', 'NOT AFTER'], rows),
      );
    });
}
