import { randomBytes } from 'node:crypto';
import { type FileHandle, open, rename, rm } from 'node:fs/promises';
import { dirname } from 'node:path';

/**
 * Replaces a file as a whole: readers see the old bytes or the new ones, also after a crash. `mode` holds from the first
 * byte, whatever the umask and whatever was there before. Rejects with the system's error, and then the old file is intact.
 */
export async function writeFileAtomic(path: string, data: Buffer | string, mode: number): Promise<void> {
  const temporary = `${path}.${randomBytes(6).toString('hex')}.tmp`;
  try {
    await withFile(temporary, 'wx', mode, async (file) => {
      await file.chmod(mode);
      await file.writeFile(data);
      await file.sync();
    });
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
  await withFile(dirname(path), 'r', 0, (directory) => directory.sync());
}

async function withFile(
  path: string,
  flags: string,
  mode: number,
  use: (file: FileHandle) => Promise<void>,
): Promise<void> {
  const file = await open(path, flags, mode);
  try {
    await use(file);
  } finally {
    await file.close();
  }
}
