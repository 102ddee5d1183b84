import { basename, relative } from 'node:path';
import { type Clock, systemClock } from '../clock.js';

export interface OutputStream {
  write(text: string | Uint8Array): unknown;
  readonly isTTY?: boolean;
}

/** What a command sees of the world. */
export interface CliIo {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly cwd: string;
  readonly stdout: OutputStream;
  readonly stderr: OutputStream;
  readonly clock: Clock;
  /** How this program was started, for texts that say what to type next: "sdsd", "npx sdsd". */
  readonly command: string;
  /** Calls `handler` at each signal, instead of what the signal does by itself; returns what undoes it. */
  onSignal(signal: NodeJS.Signals, handler: () => void): () => void;
  /** Ends the process at once. */
  exit(code: number): void;
}

/** The world of this process. */
export function processIo(): CliIo {
  return {
    env: process.env,
    cwd: process.cwd(),
    stdout: process.stdout,
    stderr: process.stderr,
    clock: systemClock,
    command: startedAs(),
    onSignal(signal, handler) {
      process.on(signal, handler);
      return () => process.off(signal, handler);
    },
    exit: (code) => process.exit(code),
  };
}

function startedAs(): string {
  if (process.env['npm_command'] !== undefined) return 'npx sdsd';
  const script = process.argv[1] ?? 'sdsd';
  if (basename(script) === 'sdsd') return 'sdsd';
  return ['node', ...process.execArgv, relative(process.cwd(), script)].map(shellWord).join(' ');
}

/** A word as a POSIX shell must be given it. */
export function shellWord(word: string): string {
  return /^[A-Za-z0-9_./:@%+=,-]+$/.test(word) ? word : `'${word.replace(/'/g, `'\\''`)}'`;
}

/** Whether text for this stream may be coloured: only for a terminal, and not when NO_COLOR is set (https://no-color.org). */
export function mayColor(io: CliIo, stream: OutputStream): boolean {
  return stream.isTTY === true && (io.env['NO_COLOR'] ?? '') === '' && io.env['TERM'] !== 'dumb';
}
