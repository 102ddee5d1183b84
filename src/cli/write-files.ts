import { link, mkdir, open, rename, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { errnoOf, messageOf, SdsdError } from '../errors.js';

export interface FileToWrite {
  /** Absolute. Missing directories are made. */
  readonly path: string;
  readonly content: Buffer;
  /** Permission bits, from the first byte on. */
  readonly mode: number;
}

/**
 * Writes all files or none: each whole under another name first, then all put in place; if that fails half way, what was
 * there before is put back. Without `overwrite`, a file that exists is an error. Throws ERR_SDSD_OUTPUT.
 */
export async function writeFiles(files: readonly FileToWrite[], overwrite: boolean): Promise<void> {
  const suffix = `.sdsd-${process.pid}`;
  const undo: (() => Promise<void>)[] = [];
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
  } finally {
    for (const clean of undo) await clean();
  }
}

async function writeWhole(temporary: string, { path, content, mode }: FileToWrite): Promise<void> {
  await mkdir(dirname(path), { recursive: true });
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
    if (errnoOf(error) === 'EEXIST') {
      throw new SdsdError('ERR_SDSD_OUTPUT', `${path} exists already, and nothing was written`, {
        hint: 'choose another place, or add --force to overwrite',
        cause: error,
      });
    }
    throw new SdsdError('ERR_SDSD_OUTPUT', `cannot write ${path}: ${messageOf(error)}`, {
      hint: 'choose a place where this user may write',
      cause: error,
    });
  }
}
