import { Command } from 'commander';
import { productVersion } from '../version.js';
import { addCaCommand } from './ca.js';
import { addEnvoyCommand } from './envoy.js';
import { addGetCommand } from './get.js';
import { addHelpCommand, pathOf, withSubcommands } from './help.js';
import type { CliIo } from './io.js';
import { addIssueCommand } from './issue.js';
import { CommandLineError, reportError } from './report.js';
import { addRotateCommand } from './rotate.js';
import { addRotateRootCommand } from './rotate-root.js';
import { addRunCommand } from './run.js';
import { addStatusCommand } from './status.js';
import { addVersionCommand } from './version.js';

/**
 * Runs one command, given without the name of the program, and returns the exit code: 0 when it did what was asked, 1 when
 * it could not, 2 when the command line or the configuration is wrong. Errors are printed, not thrown.
 */
export async function runCli(args: readonly string[], io: CliIo): Promise<number> {
  const program = buildProgram(io);
  const report = (error: unknown): number => reportError(error, io, program.opts()['verbose'] === true);
  let code: number;
  try {
    await program.parseAsync([...args], { from: 'user' });
    code = 0;
  } catch (error) {
    code = report(error);
  }
  // What was not written was not done. After another error, that one says why.
  const unwritten = await io.stdout
    .flush(program.args[0] === 'run' ? LAST_WORDS_MS : undefined)
    .then(() => 0, code === 0 ? report : () => 0);
  // Nobody is left to tell that errors cannot be told.
  await io.stderr.flush(LAST_WORDS_MS).catch(() => undefined);
  return code === 0 ? unwritten : code;
}

/** How long the reader of the log may take to read its end. */
const LAST_WORDS_MS = 2_000;

/** The command line: nothing that a command needs beyond its options is imported before its action runs. */
export function buildProgram(io: CliIo): Command {
  const program = new Command('sdsd')
    .description('Hands TLS certificates and trust anchors to Envoy over SDS, and renews them before they expire.')
    .version(productVersion(), '-V, --version', 'print the version')
    .option('-v, --verbose', 'run logs at the level debug; every command shows where an error comes from')
    .option(
      '-q, --quiet',
      'rotate, rotate-root and issue print nothing on success; run prints nothing, and logs only warnings and errors',
    )
    .helpOption('-h, --help', 'show this help')
    .configureHelp({ showGlobalOptions: true })
    .showSuggestionAfterError(true)
    .configureOutput({
      writeOut: (text) => io.stdout.write(text),
      writeErr: (text) => io.stderr.write(text),
      // Errors are reported when they arrive at runCli.
      outputError: () => undefined,
      getOutHasColors: () => false,
      getErrHasColors: () => false,
    })
    .addHelpText('after', HELP);
  addRunCommand(program, io);
  addGetCommand(program, io);
  addStatusCommand(program, io);
  addRotateCommand(program, io);
  addRotateRootCommand(program, io);
  addIssueCommand(program, io);
  addCaCommand(program, io);
  addEnvoyCommand(program, io);
  addVersionCommand(program, io);
  addHelpCommand(program, io);
  for (const command of withSubcommands(program)) {
    command.exitOverride((error) => {
      throw new CommandLineError(pathOf(command), error);
    });
  }
  return program;
}

const HELP = `
The shortest way from nothing to a certificate:
  sdsd run                                start the daemon, with a CA of its own
  sdsd get default                        in another terminal: what Envoy would get
  sdsd envoy bootstrap > envoy.yaml       a complete configuration for Envoy
  envoy -c envoy.yaml

Settings come from flags, environment variables or a YAML file: see sdsd run --help.
Exit codes: 0 done, 1 failed, 2 wrong command line or configuration.
`;
