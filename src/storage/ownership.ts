/**
 * Who could exchange a file under its user: whoever owns a part of its path. What holds keys is used only if every part,
 * symbolic links and their targets among them, belongs to this user or to root, as ssh wants it of its own files.
 */
import { lstatSync, readlinkSync, type Stats, statSync } from 'node:fs';
import { dirname, isAbsolute, join, relative, resolve, sep } from 'node:path';
import { errnoOf } from '../errors.js';

/** As many links as Linux follows. */
const MAX_LINKS = 40;

export interface PathFault {
  /** The end of a sentence that begins with the path. */
  readonly what: string;
  readonly cure: string;
}

export interface OwnershipOptions {
  /** Absolute. What does not exist yet is no fault, nor what would stand below it. */
  readonly path: string;
  /**
   * This directory and all above it are taken as they are: whoever starts a program there has decided to trust its owner.
   * Absolute and without links, as `process.cwd()` gives it.
   */
  readonly trusted: string;
}

/** Why a path must not be used for what is secret, or undefined. Throws the system's error for what cannot be looked at. */
export function ownershipFault({ path, trusted }: OwnershipOptions): PathFault | undefined {
  const user = process.geteuid?.();
  if (user === undefined) return undefined;
  let rest = partsOf(path);
  let at = '/';
  for (let links = 0; rest.length > 0; ) {
    const [name = '', ...below] = rest;
    const part = join(at, name);
    const found = lstat(part);
    if (found === undefined) return undefined;
    if (!isWithin(trusted, part) && found.uid !== user && found.uid !== 0) return foreign(part, found, user);
    if (!found.isSymbolicLink()) {
      at = part;
      rest = below;
      continue;
    }
    const target = resolve(at, readlinkSync(part));
    if (++links > MAX_LINKS) return { what: `leads over too many symbolic links, at ${part}`, cure: `remove ${part}` };
    if (statSync(part, { throwIfNoEntry: false }) === undefined) return dangling(part, target);
    at = '/';
    rest = [...partsOf(target), ...below];
  }
  return undefined;
}

/**
 * The first directory on the way to a socket that its group cannot pass, or undefined. The working directory (`trusted`) and
 * what is above it are not looked at: whoever starts a program there knows who gets there.
 */
export function closedToGroup({ path, trusted }: OwnershipOptions): string | undefined {
  const { gid } = statSync(path);
  for (let directory = dirname(path); !isWithin(trusted, directory); directory = dirname(directory)) {
    const { mode, gid: group } = statSync(directory);
    if (!(mode & 0o001) && !(mode & 0o010 && group === gid)) return directory;
  }
  return undefined;
}

function foreign(part: string, found: Stats, user: number): PathFault {
  const kind = found.isSymbolicLink() ? 'the link ' : '';
  return {
    what: `${kind}${part} belongs to the user with the ID ${found.uid}, who could exchange what is in it`,
    cure: `choose a place that belongs to this user (ID ${user}) or to root, or give it to this user: chown -h ${user} ${part}`,
  };
}

function dangling(link: string, target: string): PathFault {
  return {
    what: `${link} is a symbolic link to ${target}, which does not exist`,
    cure: `mount or restore ${target}, or remove the link`,
  };
}

function partsOf(path: string): string[] {
  return path.split(sep).filter((part) => part !== '');
}

/** Whether `path` is `directory` itself or above it. */
function isWithin(directory: string, path: string): boolean {
  const way = relative(path, directory);
  return way === '' || (way.split(sep)[0] !== '..' && !isAbsolute(way));
}

function lstat(path: string): Stats | undefined {
  try {
    return lstatSync(path);
  } catch (error) {
    if (errnoOf(error) === 'ENOENT' || errnoOf(error) === 'ENOTDIR') return undefined;
    throw error;
  }
}
