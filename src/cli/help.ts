import type { Command } from 'commander';
import { nearest } from '../config/index.js';
import type { CliIo } from './io.js';
import { usageError } from './options.js';

/** The `help` command of one that has commands: commander's own shows the wrong help for a name that it does not know. */
export function addHelpCommand(parent: Command, io: CliIo): void {
  parent
    .helpCommand(false)
    .command('help')
    .description('Shows the help of a command.')
    .argument('[command...]', 'such as: get, or: ca export')
    .action((names: readonly string[]) => {
      let command = parent;
      for (const name of names) command = subcommand(command, name, io);
      command.help();
    });
}

function subcommand(command: Command, name: string, io: CliIo): Command {
  const found = command.commands.find((candidate) => candidate.name() === name);
  if (found) return found;
  const near = nearest(
    name,
    command.commands.map((candidate) => candidate.name()),
  );
  const help = `${pathOf(command).replace(/^sdsd/, io.command)} --help`;
  throw usageError(`unknown command '${name}'`, near === undefined ? help : `${near} (${help} lists all)`);
}

/** The command with those above it: "sdsd ca export". */
export function pathOf(command: Command): string {
  return command.parent ? `${pathOf(command.parent)} ${command.name()}` : command.name();
}

/** The command and all below it. */
export function withSubcommands(command: Command): readonly Command[] {
  return [command, ...command.commands.flatMap(withSubcommands)];
}
