import type { CommanderError } from 'commander';
import { type ErrorCode, errnoOf, messageOf, SdsdError } from '../errors.js';
import { printable } from '../log.js';
import { type CliIo, ReaderGone } from './io.js';

/** Errors of whoever typed or configured, not of what then happened. */
const USAGE_CODES: ReadonlySet<ErrorCode> = new Set(['ERR_SDSD_CONFIG', 'ERR_SDSD_USAGE', 'ERR_SDSD_SPIFFE_ID']);

/** What commander says, and of which command: "sdsd get". */
export class CommandLineError extends Error {
  readonly command: string;
  readonly error: CommanderError;

  constructor(command: string, error: CommanderError) {
    super(error.message);
    this.command = command;
    this.error = error;
  }
}

/**
 * Tells a person what went wrong and what to do, and returns the exit code: 0 when nothing went wrong (commander throws
 * after it has printed a help text), 2 for the command line and the configuration, 1 for all else.
 */
export function reportError(error: unknown, io: CliIo, verbose: boolean): number {
  if (error instanceof ReaderGone) return 0;
  if (error instanceof CommandLineError) return reportCommandLine(error, io);
  const known = error instanceof SdsdError ? error : systemError(error);
  if (known) {
    io.stderr.write(lines(known.message, known.code, known.hint));
    if (verbose) io.stderr.write(stack(error));
    return USAGE_CODES.has(known.code) ? 2 : 1;
  }
  io.stderr.write(`sdsd: ${printable(messageOf(error))}\n`);
  io.stderr.write(verbose ? stack(error) : `  try: ${io.command} --verbose …, for the place in the program\n`);
  return 1;
}

function reportCommandLine({ command, error }: CommandLineError, io: CliIo): number {
  if (error.exitCode === 0) return 0;
  // Help that was printed for want of a command is the message.
  if (error.code === 'commander.help') return 2;
  const [first = '', ...rest] = error.message.replace(/^error: /, '').split('\n');
  const help = `${command.replace(/^sdsd/, io.command)} --help`;
  const suggestion = /^\(Did you mean (?:one of )?(.*)\?\)$/.exec(rest.join(' '))?.[1];
  io.stderr.write(
    lines(first, 'ERR_SDSD_USAGE', suggestion === undefined ? help : `${suggestion} (${help} lists all)`),
  );
  return 2;
}

/** An error of the operating system that no command has put into words of its own. */
function systemError(error: unknown): SdsdError | undefined {
  if (!(error instanceof Error) || errnoOf(error) === undefined || !('syscall' in error)) return undefined;
  const socket = ['connect', 'listen', 'bind'].some((call) => call === error.syscall);
  return new SdsdError(socket ? 'ERR_SDSD_SOCKET' : 'ERR_SDSD_OUTPUT', error.message, {
    hint: 'see whether this user may use what the message names, and whether there is room; --verbose shows the place',
    cause: error,
  });
}

function lines(message: string, code: ErrorCode, hint: string | undefined): string {
  return `sdsd: ${printable(message)} [${code}]\n${hint === undefined ? '' : `  try: ${printable(hint)}\n`}`;
}

function stack(error: unknown): string {
  const parts: string[] = [];
  for (let current = error; current instanceof Error; current = current.cause) {
    parts.push(current.stack ?? current.message);
  }
  return `${parts.join('\ncaused by: ')}\n`;
}
