import { randomBytes } from 'node:crypto';
import { open, rename, rm } from 'node:fs/promises';
import { dirname } from 'node:path';

/**
 * Replaces a file as a whole: readers see the old bytes or the new ones, also after a crash. `mode` holds from the first
 * byte, whatever the umask and whatever was there before. Rejects with the system's error, and then the old file is intact.
 */
export async function writeFileAtomic(path: string, data: Buffer | string, mode: number): Promise<void> {
  const temporary = await writeTemporary(path, data, mode);
  try {
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
  await syncDirectory(dirname(path));
}

/** Writes the data to the disk beside `path`; returns where. Rejects with the system's error, and leaves nothing behind. */
export async function writeTemporary(path: string, data: Buffer | string, mode: number): Promise<string> {
  const temporary = `${path}.${randomBytes(6).toString('hex')}.tmp`;
  try {
    const file = await open(temporary, 'wx', mode);
    try {
      await file.chmod(mode);
      await file.writeFile(data);
      await file.sync();
    } finally {
      await file.close();
    }
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
  return temporary;
}

/**
 * Has a directory's entries written to the disk, so that a rename outlives a power cut. Never rejects: the new file is in
 * place for everybody by then, so whoever is told of a failure would believe the wrong thing; and some file systems cannot.
 */
export async function syncDirectory(path: string): Promise<void> {
  try {
    const directory = await open(path, 'r');
    try {
      await directory.sync();
    } finally {
      await directory.close();
    }
  } catch {
    // See above.
  }
}
