import type { Command } from 'commander';
import { isoSeconds } from '../clock.js';
import { loadClientConfig, settings } from '../config/index.js';
import { printable } from '../log.js';
import { json } from './format.js';
import type { CliIo } from './io.js';
import { configFileOption, configSources, flag, optionsOf, outputOption, settingOption, text } from './options.js';

export function addRotateRootCommand(program: Command, io: CliIo): void {
  program
    .command('rotate-root')
    .description(
      'Has the running daemon replace the root of its local CA, without a moment in which peers refuse each other.',
    )
    .addOption(settingOption(settings.controlSocket))
    .addOption(configFileOption())
    .addOption(outputOption('text', 'json'))
    .addHelpText(
      'after',
      `
The new root is pushed next to the old one; certificates under it follow when every Envoy has acknowledged it; the old root
goes when the last certificate under it has expired.

Example:
  sdsd rotate-root && sdsd get ROOTCA
`,
    )
    .action(async (_options: unknown, command: Command) => {
      const options = optionsOf(command);
      const { controlSocket } = await loadClientConfig(configSources(options, io));
      const { controlClient } = await import('../admin/control-client.js');
      const result = await controlClient(controlSocket).rotateRoot();
      if (flag(options, 'quiet')) return;
      const notAfter = isoSeconds(Date.parse(result.notAfter));
      io.stdout.write(
        text(options, 'output') === 'json'
          ? json({ ...result, notAfter })
          : `new root    SHA-256 ${printable(result.fingerprint)}\nnot after   ${notAfter}\n`,
      );
    });
}
