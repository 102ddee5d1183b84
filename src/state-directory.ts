/** The directory that outlives a restart: made, checked and locked against a second sdsd. */
import { readdir, readFile, rm, stat } from 'node:fs/promises';
import { createServer } from 'node:net';
import { dirname, join } from 'node:path';
import { writeFileAtomic } from './atomic-file.js';
import type { Clock } from './clock.js';
import { makeDirectories } from './directories.js';
import { errnoOf, messageOf, SdsdError } from './errors.js';
import { keepListening, listenUnix, type UnixListener } from './rpc/index.js';

/** The layout of the directory. A later layout gets a greater number, and code that brings an older one up to it. */
const FORMAT = '1';

export interface StateDirectoryOptions {
  /** Absolute. */
  readonly path: string;
  readonly clock: Clock;
  /** Told once when the lock was deleted by hand and cannot be made again for now. */
  readonly onLockLost: (error: unknown) => void;
  /** Told when another sdsd has taken the directory, which it can only after the lock was deleted by hand. */
  readonly onTaken: (error: SdsdError) => void;
}

export interface StateDirectory {
  readonly path: string;
  /** Lets another sdsd have the directory. */
  unlock(): Promise<void>;
}

/**
 * Makes the directory (0700) if it is not there, and locks it. Throws ERR_SDSD_STATE if it cannot be used, and
 * ERR_SDSD_STATE_LOCKED if another sdsd has it.
 */
export async function openStateDirectory(options: StateDirectoryOptions): Promise<StateDirectory> {
  const { path } = options;
  try {
    // Only the directory itself is for this user alone: others may have to pass through those above it.
    makeDirectories(dirname(path));
    makeDirectories(path, 0o700);
    const { mode } = await stat(path);
    if (mode & 0o077) {
      throw new SdsdError('ERR_SDSD_STATE', `other users may read the state directory ${path}, which holds keys`, {
        hint: `chmod 700 ${path}`,
      });
    }
  } catch (error) {
    throw unusable(path, error);
  }
  const lock = await takeLock(options);
  try {
    await checkFormat(path);
    await removeLeftovers(path);
  } catch (error) {
    await lock.close();
    throw unusable(path, error);
  }
  return { path, unlock: () => lock.close() };
}

/**
 * The lock is a Unix socket that answers: the kernel ends it with the process, however that dies, and it works between
 * containers that share the directory.
 */
async function takeLock({ path, clock, onLockLost, onTaken }: StateDirectoryOptions): Promise<UnixListener> {
  const listen = (): Promise<UnixListener> => {
    const server = createServer((socket) => {
      socket.on('error', () => socket.destroy());
      socket.end('locked\n');
    });
    server.unref();
    return listenUnix(server, {
      path: join(path, 'lock'),
      mode: 0o600,
      greeting: Buffer.from('?'),
      clock,
      anyLength: true,
      // A daemon that is stopped by a debugger has its lock all the same.
      muteLives: true,
    }).catch((error: unknown) => {
      throw lockError(path, error);
    });
  };
  return keepListening({
    listen,
    clock,
    onRestored: () => undefined,
    onLost: onLockLost,
    onTaken,
  });
}

function lockError(path: string, error: unknown): SdsdError {
  if (!(error instanceof SdsdError) || error.code !== 'ERR_SDSD_SOCKET_IN_USE') return unusable(path, error);
  return new SdsdError('ERR_SDSD_STATE_LOCKED', `another sdsd uses the state directory ${path}`, {
    hint: 'stop it, or give each its own with --state-dir',
    cause: error,
  });
}

async function checkFormat(path: string): Promise<void> {
  const file = join(path, 'format');
  let found: string;
  try {
    found = (await readFile(file, 'utf8')).trim();
  } catch (error) {
    if (errnoOf(error) !== 'ENOENT') throw error;
    await writeFileAtomic(file, `${FORMAT}\n`, 0o600);
    return;
  }
  if (found === FORMAT) return;
  throw new SdsdError(
    'ERR_SDSD_STATE',
    `${path} holds state of format ${JSON.stringify(found)}; this sdsd knows ${FORMAT}`,
    {
      hint: 'use the sdsd that wrote it, or another --state-dir',
    },
  );
}

/** Files that were being written when an earlier daemon died; what they were to replace is whole. */
async function removeLeftovers(path: string): Promise<void> {
  for (const entry of await readdir(path, { recursive: true, withFileTypes: true })) {
    if (entry.isFile() && entry.name.endsWith('.tmp')) await rm(join(entry.parentPath ?? entry.path, entry.name));
  }
}

function unusable(path: string, error: unknown): SdsdError {
  if (error instanceof SdsdError && error.code.startsWith('ERR_SDSD_STATE')) return error;
  return new SdsdError('ERR_SDSD_STATE', `cannot use the state directory ${path}: ${messageOf(error)}`, {
    hint: 'let this user write there, or choose another directory with --state-dir or SDSD_STATE_DIR',
    cause: error,
  });
}
