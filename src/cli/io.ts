import { basename, relative } from 'node:path';
import { type Clock, systemClock } from '../clock.js';
import { errnoOf, messageOf, SdsdError } from '../errors.js';

export interface OutputStream {
  /** Takes text without waiting; whether it could be written is what `flush` tells. */
  write(text: string | Uint8Array): unknown;
  /**
   * Resolves when all that `write` took is written, or `withinMs` milliseconds are over: a reader may have stopped to read.
   * Rejects, once, with the first failure since the last call: {@link ReaderGone}, or ERR_SDSD_OUTPUT.
   */
  flush(withinMs?: number): Promise<void>;
  readonly isTTY?: boolean;
}

/** Whoever read the output has seen enough, as in `sdsd get default | head -1`: a reason to end, but no failure. */
export class ReaderGone extends Error {}

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
  for (const stream of [process.stdout, process.stderr]) unblock(stream);
  return {
    env: process.env,
    cwd: process.cwd(),
    stdout: outputStream(process.stdout, 'the standard output'),
    stderr: outputStream(process.stderr, 'the standard error output', MAX_UNREAD_LOG),
    clock: systemClock,
    command: startedAs(),
    onSignal(signal, handler) {
      process.on(signal, handler);
      return () => process.off(signal, handler);
    },
    exit: (code) => process.exit(code),
  };
}

/**
 * Whoever starts a program with the same pipe makes it block, for all who share it: then a reader that stalls would stop the whole
 * daemon at its next line. Node has no public way to undo that.
 */
function unblock(stream: NodeJS.WriteStream): void {
  const handle: unknown = Reflect.get(stream, '_handle');
  if (stream.isTTY || typeof handle !== 'object' || handle === null) return;
  const setBlocking: unknown = Reflect.get(handle, 'setBlocking');
  if (typeof setBlocking === 'function') setBlocking.call(handle, false);
}

/** How much of the log, in bytes, waits for a reader that has stopped to read; what comes then is lost, and counted. */
const MAX_UNREAD_LOG = 1024 * 1024;

/**
 * @param name for messages.
 * @param maxUnread how many bytes may wait to be written before texts are dropped; without it none ever is.
 */
export function outputStream(
  stream: NodeJS.WritableStream & { readonly isTTY?: boolean; readonly writableLength?: number },
  name: string,
  maxUnread = Number.POSITIVE_INFINITY,
): OutputStream {
  let failure: unknown;
  let lost = 0;
  let written: Promise<void> = Promise.resolve();
  // Heard where the text was written; without a listener it would end the process, a daemon's as well.
  stream.on('error', (error) => {
    failure ??= error;
  });
  return {
    isTTY: stream.isTTY === true,
    write(text) {
      if ((stream.writableLength ?? 0) > maxUnread) {
        lost += 1;
        return;
      }
      const before = written;
      const notice = lost > 0 ? `sdsd: ${lost} lines of this output were lost: nobody read it\n` : '';
      lost = 0;
      const now = new Promise<void>((resolve) => {
        stream.write(notice === '' ? text : notice + text, (error) => {
          failure ??= error ?? undefined;
          resolve();
        });
      });
      written = before.then(() => now);
    },
    async flush(withinMs) {
      let timer: NodeJS.Timeout | undefined;
      const late = new Promise<void>((resolve) => {
        if (withinMs !== undefined) timer = setTimeout(resolve, withinMs);
      });
      await Promise.race([written, late]);
      clearTimeout(timer);
      const error = failure;
      failure = undefined;
      if (error === undefined) return;
      if (errnoOf(error) === 'EPIPE') throw new ReaderGone(messageOf(error));
      throw new SdsdError('ERR_SDSD_OUTPUT', `cannot write to ${name}: ${messageOf(error)}`, {
        hint: 'make room where it is sent to, or send it to another place',
        cause: error,
      });
    },
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
