import type { Command } from 'commander';
import { productVersion } from '../version.js';
import { json } from './format.js';
import type { CliIo } from './io.js';
import { optionsOf, outputOption, text } from './options.js';

export function addVersionCommand(program: Command, io: CliIo): void {
  program
    .command('version')
    .description('Prints the versions of sdsd and of Node, and the platform.')
    .addOption(outputOption('text', 'json'))
    .action((_options: unknown, command: Command) => {
      const versions = {
        sdsd: productVersion(),
        node: process.versions.node,
        platform: `${process.platform} ${process.arch}`,
      };
      io.stdout.write(
        text(optionsOf(command), 'output') === 'json'
          ? json(versions)
          : `sdsd ${versions.sdsd} (Node ${versions.node}, ${versions.platform})\n`,
      );
    });
}
