/** The directory that outlives a restart: made, checked and locked against a second sdsd. */
import { readdir, readFile, rm, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { errnoOf, messageOf, SdsdError } from '../errors.js';
import { writeFileAtomic } from './atomic-file.js';
import { makeDirectories } from './directories.js';
import { ownershipFault } from './ownership.js';

/** The layout of the directory. A later layout gets a greater number, and code that brings an older one up to it. */
const FORMAT = '1';

/** What a daemon writes there: each folder, with the names of its files. */
const LAYOUT: readonly { readonly folder: string; readonly files: RegExp }[] = [
  { folder: '.', files: /^(?:format|trust-bundle\.json)$/ },
  { folder: 'ca', files: /^ca\.pem$/ },
  { folder: 'identities', files: /^[0-9a-f]{64}$/ },
];

/** What a file is called while it is written: see `writeTemporary`. */
const TEMPORARY = /^(.+)\.[0-9a-f]{12}\.tmp$/;

/** What may stand in a directory that no sdsd has used: the lock of one that starts, and what a new file system holds. */
const NOBODYS = /^(?:lock|\.sdsd-.*|format\.[0-9a-f]{12}\.tmp|lost\+found)$/;

export interface StateDirectoryOptions {
  /** Absolute. */
  readonly path: string;
  /** The working directory: it and what is above it are taken as they are, whoever owns them. */
  readonly trusted: string;
  /** Takes the lock, a socket at this path that lives as long as its process; rejects with ERR_SDSD_STATE_LOCKED. */
  readonly lock: (path: string) => Promise<StateLock>;
}

export interface StateLock {
  close(): Promise<void>;
}

export interface StateDirectory {
  readonly path: string;
  /** Lets another sdsd have the directory. */
  unlock(): Promise<void>;
}

/**
 * Makes the directory (0700) if it is not there, and locks it. Throws ERR_SDSD_STATE if it cannot be used: it or a part of
 * its path belongs to another user, it is in use for something else, others may read it, or it is of another format; and
 * ERR_SDSD_STATE_LOCKED if another sdsd has it.
 */
export async function openStateDirectory(options: StateDirectoryOptions): Promise<StateDirectory> {
  const { path } = options;
  try {
    checkOwners(options);
    makeDirectories(path, 0o700);
    await checkMode(path);
    await checkPurpose(path);
  } catch (error) {
    throw unusable(path, error);
  }
  const lock = await options.lock(join(path, 'lock'));
  try {
    await checkFormat(path);
    await removeLeftovers(path);
  } catch (error) {
    await lock.close();
    throw unusable(path, error);
  }
  return { path, unlock: () => lock.close() };
}

/** The directory, and what is in it already. */
function checkOwners({ path, trusted }: StateDirectoryOptions): void {
  const parts = ['.', 'format', 'trust-bundle.json', 'ca', 'identities'];
  for (const part of parts) {
    const fault = ownershipFault({ path: join(path, part), trusted });
    if (fault === undefined) continue;
    throw new SdsdError('ERR_SDSD_STATE', `cannot use the state directory ${path}: ${fault.what}`, {
      hint: fault.cure,
    });
  }
}

async function checkMode(path: string): Promise<void> {
  const { mode } = await stat(path);
  if (!(mode & 0o077)) return;
  throw new SdsdError('ERR_SDSD_STATE', `other users may read the state directory ${path}, which holds keys`, {
    hint: `chmod 700 ${path}`,
  });
}

/** A directory that holds other things, and never was an sdsd's, stays as it is. */
async function checkPurpose(path: string): Promise<void> {
  const names = await readdir(path);
  if (names.includes('format')) return;
  const foreign = names.filter((name) => !NOBODYS.test(name)).sort();
  if (foreign.length === 0) return;
  const shown = foreign.slice(0, 3).join(', ');
  const more = foreign.length > 3 ? ` and ${foreign.length - 3} more` : '';
  throw new SdsdError(
    'ERR_SDSD_STATE',
    `${path} is not a state directory of sdsd: it holds ${shown}${more}, and no file "format"`,
    {
      hint: `choose an empty or a new directory with --state-dir; if this one was an sdsd's: echo ${FORMAT} > ${join(path, 'format')}`,
    },
  );
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
    `${path} holds state of format ${JSON.stringify(found.slice(0, 40))}; this sdsd knows ${FORMAT}`,
    {
      hint: 'use the sdsd that wrote it, or another --state-dir',
    },
  );
}

/** Our own files that were being written when an earlier daemon died; what they were to replace is whole. */
async function removeLeftovers(path: string): Promise<void> {
  for (const { folder, files } of LAYOUT) {
    for (const entry of await filesIn(join(path, folder))) {
      const name = TEMPORARY.exec(entry)?.[1];
      if (name !== undefined && files.test(name)) await rm(join(path, folder, entry));
    }
  }
}

async function filesIn(folder: string): Promise<string[]> {
  try {
    const entries = await readdir(folder, { withFileTypes: true });
    return entries.filter((entry) => entry.isFile()).map(({ name }) => name);
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return [];
    throw error;
  }
}

function unusable(path: string, error: unknown): SdsdError {
  if (error instanceof SdsdError && error.code.startsWith('ERR_SDSD_STATE')) return error;
  return new SdsdError('ERR_SDSD_STATE', `cannot use the state directory ${path}: ${messageOf(error)}`, {
    hint: `let this user write in ${dirname(path)}, or choose another directory with --state-dir or SDSD_STATE_DIR`,
    cause: error,
  });
}
