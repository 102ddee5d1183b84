import { mkdtempSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import type { CliIo } from '../../../src/cli/io.js';
import { runCli } from '../../../src/cli/program.js';
import { type Clock, systemClock } from '../../../src/clock.js';

export interface FakeIo extends CliIo {
  /** What was written so far. */
  readonly out: () => string;
  readonly err: () => string;
  /** Runs what the program does at a signal; false when it does not listen. */
  readonly signal: (signal: NodeJS.Signals) => boolean;
  readonly exits: number[];
}

export interface FakeIoOptions {
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  readonly clock?: Clock;
  readonly isTTY?: boolean;
  /** Called at each write to stdout, with all that was written so far. */
  readonly onOut?: (text: string) => void;
  /** What becomes of what is written to stdout; default: it is written. */
  readonly flush?: () => Promise<void>;
}

/** A working directory below which nothing can be made. */
export const NOWHERE = '/dev/null';

/** A world in memory: nothing of the machine's environment gets in. */
export function fakeIo({
  env = {},
  cwd = NOWHERE,
  clock = systemClock,
  isTTY = false,
  onOut,
  flush = async () => undefined,
}: FakeIoOptions = {}): FakeIo {
  const written = { out: '', err: '' };
  const handlers = new Map<NodeJS.Signals, () => void>();
  const exits: number[] = [];
  return {
    env,
    cwd,
    clock,
    command: 'npx sdsd',
    stdout: {
      isTTY,
      write: (text) => {
        written.out += text;
        onOut?.(written.out);
      },
      flush,
    },
    stderr: {
      isTTY,
      write: (text) => {
        written.err += text;
      },
      flush: async () => undefined,
    },
    onSignal(signal, handler) {
      handlers.set(signal, handler);
      return () => handlers.delete(signal);
    },
    exit: (code) => void exits.push(code),
    out: () => written.out,
    err: () => written.err,
    signal(signal) {
      handlers.get(signal)?.();
      return handlers.has(signal);
    },
    exits,
  };
}

export interface CliResult {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

export async function cli(args: readonly string[], options: FakeIoOptions = {}): Promise<CliResult> {
  const io = fakeIo(options);
  const code = await runCli(args, io);
  return { code, out: io.out(), err: io.err() };
}

/** A directory that is removed after the test. */
export function workDirectory(t: TestContext): string {
  const directory = mkdtempSync(join(realpathSync(tmpdir()), 'sdsd-cli-'));
  t.after(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}
