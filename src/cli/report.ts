import { CommanderError } from 'commander';
import { type ErrorCode, messageOf, SdsdError } from '../errors.js';
import { printable } from '../log.js';
import type { CliIo } from './io.js';

/** Errors of whoever typed or configured, not of what then happened. */
const USAGE_CODES: ReadonlySet<ErrorCode> = new Set(['ERR_SDSD_CONFIG', 'ERR_SDSD_USAGE', 'ERR_SDSD_SPIFFE_ID']);

/**
 * Tells a person what went wrong and what to do, and returns the exit code: 0 when nothing went wrong (commander throws
 * after it has printed a help text), 2 for the command line and the configuration, 1 for all else.
 */
export function reportError(error: unknown, io: CliIo, verbose: boolean): number {
  if (error instanceof CommanderError) return reportCommander(error, io);
  if (error instanceof SdsdError) {
    io.stderr.write(lines(error.message, error.code, error.hint));
    if (verbose) io.stderr.write(stack(error));
    return USAGE_CODES.has(error.code) ? 2 : 1;
  }
  io.stderr.write(`sdsd: ${printable(messageOf(error))}\n`);
  io.stderr.write(verbose ? stack(error) : `  try: ${io.command} --verbose …, for the place in the program\n`);
  return 1;
}

function reportCommander(error: CommanderError, io: CliIo): number {
  if (error.exitCode === 0) return 0;
  // Help that was printed for want of a command is the message.
  if (error.code === 'commander.help') return 2;
  const [first = '', ...rest] = error.message.replace(/^error: /, '').split('\n');
  const suggestion = /^\(Did you mean (?:one of )?(.*)\?\)$/.exec(rest.join(' '))?.[1];
  io.stderr.write(lines(first, 'ERR_SDSD_USAGE', suggestion ?? `${io.command} --help`));
  return 2;
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
