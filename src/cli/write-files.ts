import type { Stats } from 'node:fs';
import { link, lstat, mkdir, open, rename, rm, rmdir, stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { errnoOf, messageOf, SdsdError } from '../errors.js';
import { shellWord } from './io.js';

export interface FileToWrite {
  /** Absolute. */
  readonly path: string;
  readonly content: Buffer;
  /** Permission bits, from the first byte on. */
  readonly mode: number;
}

export interface WriteOptions {
  /** Whether files that exist are replaced; nothing but files ever is. */
  readonly overwrite: boolean;
  /** A directory to make if it does not exist, below one that does. */
  readonly makeDirectory?: string;
}

/**
 * Writes all files or none: each whole under another name first, then all put in place; if that fails half way, what was
 * there before is put back. Resolves with whether the directory had to be made. Throws ERR_SDSD_OUTPUT.
 */
export async function writeFiles(files: readonly FileToWrite[], options: WriteOptions): Promise<{ made: boolean }> {
  const suffix = `.sdsd-${process.pid}`;
  const undo: (() => Promise<void>)[] = [];
  const { makeDirectory, overwrite } = options;
  await checkTargets(
    files.map(({ path }) => path),
    options,
  );
  const made = makeDirectory !== undefined && (await madeNow(makeDirectory));
  try {
    for (const file of files) {
      const temporary = `${file.path}${suffix}.new`;
      undo.push(() => rm(temporary, { force: true }));
      await attempt(file.path, () => writeWhole(temporary, file));
    }
    const placed: (() => Promise<void>)[] = [];
    try {
      for (const { path } of files) {
        const backup = `${path}${suffix}.old`;
        undo.push(() => rm(backup, { force: true }));
        placed.push(await attempt(path, () => place(`${path}${suffix}.new`, path, backup, overwrite)));
      }
    } catch (error) {
      for (const restore of placed.reverse()) await restore();
      throw error;
    }
  } catch (error) {
    if (made) undo.push(() => rmdir(makeDirectory).catch(() => undefined));
    throw error;
  } finally {
    for (const clean of undo) await clean();
  }
  return { made };
}

/**
 * Whether files can be written to these paths, as far as that can be seen without writing. Throws ERR_SDSD_OUTPUT for one
 * that is taken, or whose directory does not exist and is not to be made.
 */
export async function checkTargets(
  paths: readonly string[],
  { overwrite, makeDirectory }: WriteOptions,
): Promise<void> {
  for (const path of paths) {
    const directory = dirname(path) === makeDirectory ? dirname(makeDirectory) : dirname(path);
    await attempt(path, () => checkDirectory(directory));
    const found = await attempt(path, () => existing(path));
    if (found === undefined) continue;
    if (!found.isFile()) {
      throw new SdsdError('ERR_SDSD_OUTPUT', `${path} exists and is not a file, and nothing was written`, {
        hint: 'choose another place; only files are ever overwritten',
      });
    }
    if (!overwrite) throw taken(path);
  }
}

async function checkDirectory(path: string): Promise<void> {
  const found = await stat(path).catch((error: unknown) => {
    if (errnoOf(error) === 'ENOENT') return undefined;
    throw error;
  });
  if (found?.isDirectory()) return;
  throw new SdsdError(
    'ERR_SDSD_OUTPUT',
    found ? `${path} is not a directory` : `the directory ${path} does not exist`,
    { hint: found ? 'choose another place' : `make it with: mkdir -p ${shellWord(path)}` },
  );
}

/** What stands at the path, a link being a link; undefined for nothing. */
async function existing(path: string): Promise<Stats | undefined> {
  try {
    return await lstat(path);
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return undefined;
    throw error;
  }
}

async function madeNow(directory: string): Promise<boolean> {
  return attempt(directory, async () => {
    try {
      await mkdir(directory);
      return true;
    } catch (error) {
      if (errnoOf(error) !== 'EEXIST') throw error;
      await checkDirectory(directory);
      return false;
    }
  });
}

async function writeWhole(temporary: string, { content, mode }: FileToWrite): Promise<void> {
  await rm(temporary, { force: true });
  const file = await open(temporary, 'wx', mode);
  try {
    await file.chmod(mode);
    await file.writeFile(content);
    await file.sync();
  } finally {
    await file.close();
  }
}

/** Gives the file its name; returns what takes that back. */
async function place(
  temporary: string,
  path: string,
  backup: string,
  overwrite: boolean,
): Promise<() => Promise<void>> {
  if (!overwrite) {
    // Unlike a rename, a link fails when the name is taken.
    await link(temporary, path);
    return () => rm(path, { force: true });
  }
  const existed = await link(path, backup).then(
    () => true,
    (error: unknown) => {
      if (errnoOf(error) === 'ENOENT') return false;
      throw error;
    },
  );
  await rename(temporary, path);
  return existed ? () => rename(backup, path) : () => rm(path, { force: true });
}

async function attempt<T>(path: string, action: () => Promise<T>): Promise<T> {
  try {
    return await action();
  } catch (error) {
    if (error instanceof SdsdError) throw error;
    if (errnoOf(error) === 'EEXIST') throw taken(path, error);
    throw new SdsdError('ERR_SDSD_OUTPUT', `cannot write ${path}: ${messageOf(error)}`, {
      hint: cure(errnoOf(error)),
      cause: error,
    });
  }
}

function cure(errno: string | undefined): string {
  switch (errno) {
    case 'ENOTDIR':
      return 'choose another place: a part of this path is a file, and not a directory';
    case 'ENOSPC':
    case 'EDQUOT':
      return 'make room on the disk, or choose another';
    default:
      return 'choose a place where this user may write';
  }
}

function taken(path: string, cause?: unknown): SdsdError {
  return new SdsdError('ERR_SDSD_OUTPUT', `${path} exists already, and nothing was written`, {
    hint: 'choose another place, or add --force to overwrite',
    cause,
  });
}
