import { chmodSync, mkdirSync } from 'node:fs';
import { dirname } from 'node:path';
import { errnoOf } from '../errors.js';

/**
 * Makes a directory with this mode, and those above it with 0755, unless they are there. The modes hold whatever the umask
 * says: a stricter one would keep the group of a socket out, and a laxer one would let strangers in. Throws the system's
 * error. Node's own recursive `mkdir` does the same, but Node 20 never returns from it below /proc.
 */
export function makeDirectories(path: string, mode = 0o755): void {
  if (made(path, mode)) return;
  const parent = dirname(path);
  if (parent !== path) makeDirectories(parent);
  make(path, mode);
}

/** False if the directory above is missing. */
function made(path: string, mode: number): boolean {
  try {
    make(path, mode);
    return true;
  } catch (error) {
    const errno = errnoOf(error);
    // What is there may be no directory: whoever uses it next says so.
    if (errno === 'EEXIST') return true;
    if (errno === 'ENOENT') return false;
    throw error;
  }
}

function make(path: string, mode: number): void {
  mkdirSync(path, { mode });
  chmodSync(path, mode);
}
