import { randomBytes } from 'node:crypto';
import {
  type BigIntStats,
  chmodSync,
  closeSync,
  constants,
  linkSync,
  lstatSync,
  openSync,
  readdirSync,
  type Stats,
  unlinkSync,
} from 'node:fs';
import type { Server } from 'node:net';
import { basename, dirname, join } from 'node:path';
import { type Clock, sleep } from '../clock.js';
import { errnoOf, messageOf, SdsdError } from '../errors.js';
import { makeDirectories } from '../storage/index.js';
import { type Probe, probeSocket } from './probe.js';

/** Longest socket path in bytes: `sun_path` less its final NUL. Longer ones are cut silently by the kernel's interface. */
export const MAX_SOCKET_PATH_BYTES = process.platform === 'darwin' ? 103 : 107;

/** Sockets that are not in place yet; and the right to remove a dead one. */
const TEMPORARY_PREFIX = '.sdsd-new-';
const CLAIM_PREFIX = '.sdsd-claim-';

/** Connections that may wait to be accepted: a host's Envoys may all come back at once. The kernel has a bound of its own. */
const BACKLOG = 4_096;

/** How often, and how long apart, a start tries to get the path while others try too. */
const CLAIM_TRIES = 50;
const CLAIM_PAUSE_MS = 20;

/** How long a server that listens already may take to say something, before the error calls it mute. */
const PROBE_TIMEOUT_MS = 1_000;

export interface ListenOptions {
  /** Absolute path of the socket. Missing directories are made. */
  readonly path: string;
  /** Permission bits of the directory of the socket, if it has to be made. Default: 0755. */
  readonly directoryMode?: number;
  /** Permission bits of the socket, such as 0o660: it never exists with others. */
  readonly mode: number;
  /** What is sent to a socket that is already there, to see whether its server answers: the first bytes of its protocol. */
  readonly greeting: Buffer;
  /** What a person sets to choose another path, for messages: "--socket or SDS_SOCKET". */
  readonly setting: string;
  readonly clock: Clock;
  /** Nobody has to reach it by its path, so that it may be longer than `sun_path` (on Linux). Default false. */
  readonly anyLength?: boolean;
}

export interface UnixListener {
  readonly path: string;
  /** True while the path still leads to this listener. */
  ownsPath(): boolean;
  /** Stops accepting and removes our socket, and never another server's. Open connections go on. */
  close(): Promise<void>;
}

/**
 * Makes `server` listen on a Unix socket. The socket is bound under another name in the same directory, given its mode, and
 * then linked to `path`, which fails if the path exists: of two servers that start at once, one gets it. A socket in the way
 * on which nothing listens is removed.
 *
 * Throws ERR_SDSD_SOCKET_IN_USE if something listens there, whether or not it answers, and ERR_SDSD_SOCKET for everything
 * else that stands in the way.
 */
export async function listenUnix(server: Server, options: ListenOptions): Promise<UnixListener> {
  const { path } = options;
  if (!options.anyLength) checkLength(options);
  const directory = openDirectory(options);
  try {
    const name = `${TEMPORARY_PREFIX}${process.pid}-${randomBytes(4).toString('hex')}`;
    const place: Place = {
      options,
      target: `${directory.prefix}${basename(path)}`,
      temporary: directory.prefix + name,
    };
    await sweep(directory.prefix, options);
    await bind(server, place, name);
    try {
      chmodSync(place.temporary, options.mode);
      await claim(place);
      const socket = lstatSync(place.temporary);
      unlinkSync(place.temporary);
      return listener(server, options, socket);
    } catch (error) {
      await closeServer(server);
      throw error;
    }
  } catch (error) {
    throw error instanceof SdsdError ? error : unusable(options, 'cannot listen on the socket', error);
  } finally {
    directory.close();
  }
}

/** Removes what a start left behind that was killed between binding and linking. */
async function sweep(prefix: string, options: ListenOptions): Promise<void> {
  for (const name of readdirSync(prefix)) {
    if (!name.startsWith(TEMPORARY_PREFIX)) continue;
    const leftover = `${prefix}${name}`;
    if (isDead(await probe(leftover, options.clock, Buffer.alloc(0)))) removeIfPresent(leftover, options);
  }
}

/** Names in the socket's directory, reached through its descriptor: so they are short, however long the path is. */
interface Place {
  readonly options: ListenOptions;
  readonly target: string;
  readonly temporary: string;
}

function fits(path: string): boolean {
  return Buffer.byteLength(path) <= MAX_SOCKET_PATH_BYTES;
}

function checkLength({ path, setting }: ListenOptions): void {
  if (fits(path)) return;
  const bytes = Buffer.byteLength(path);
  throw new SdsdError(
    'ERR_SDSD_SOCKET',
    `cannot listen on ${path}: the path has ${bytes} bytes, and a Unix socket's path may have ${MAX_SOCKET_PATH_BYTES}`,
    { hint: `choose a shorter path, for example below /run or /tmp, with ${setting}` },
  );
}

function openDirectory(options: ListenOptions): { prefix: string; close(): void } {
  const path = dirname(options.path);
  try {
    makeDirectories(path, options.directoryMode);
    if (process.platform !== 'linux') return { prefix: `${path}/`, close: () => undefined };
    const descriptor = openSync(path, constants.O_RDONLY | constants.O_DIRECTORY);
    return { prefix: `/proc/self/fd/${descriptor}/`, close: () => closeSync(descriptor) };
  } catch (error) {
    throw unusable({ ...options, path }, 'the directory for the socket cannot be made or opened', error);
  }
}

function unusable({ path, setting }: ListenOptions, what: string, error: unknown): SdsdError {
  // The names under which a socket is bound and claimed say nothing to a person.
  const why = messageOf(error).replace(/ '?\/\S*\/\.sdsd-[^\s']*'?( -> )?/g, '$1');
  return new SdsdError('ERR_SDSD_SOCKET', `${what}: ${path}: ${why}`, {
    hint: `make a directory that this user may write to, or choose another path with ${setting}`,
    cause: error,
  });
}

/** @param name of the socket in its directory. Bound by its whole path where that fits: `ss -xlp` shows what was bound. */
function bind(server: Server, { temporary, options }: Place, name: string): Promise<void> {
  const whole = join(dirname(options.path), name);
  return new Promise((resolve, reject) => {
    const onError = (error: Error): void => reject(unusable(options, 'cannot listen on the socket', error));
    server.once('error', onError);
    server.listen({ path: fits(whole) ? whole : temporary, backlog: BACKLOG }, () => {
      server.removeListener('error', onError);
      resolve();
    });
  });
}

/** Links the socket to its path; removes what is dead there, and gives up if something lives. */
async function claim(place: Place): Promise<void> {
  const { options } = place;
  for (let tries = 0; tries < CLAIM_TRIES; tries++) {
    if (linked(place.temporary, place.target, options)) return;
    if (!(await removeDead(place, tries === CLAIM_TRIES - 1))) await sleep(options.clock, CLAIM_PAUSE_MS);
  }
  throw new SdsdError('ERR_SDSD_SOCKET_IN_USE', `${options.path} stays taken while it changes hands`, {
    hint: `try again; if that does not help, stop all servers but one: ${whoListens(options.path)}`,
  });
}

/** False if `to` exists. */
function linked(from: string, to: string, options: ListenOptions): boolean {
  try {
    linkSync(from, to);
    return true;
  } catch (error) {
    if (errnoOf(error) === 'EEXIST') return false;
    throw unusable(options, 'cannot put the socket in place', error);
  }
}

/**
 * Removes a dead socket from the path; false if another server is about to.
 *
 * Of several servers that find the same dead socket, one may remove it: who links its own socket to a name that stands for
 * that very file. The others cannot take a living socket for the dead one, whatever their timing: while the dead one is
 * there nothing else can be linked to the path, and once it is gone its name is of no use to them.
 */
async function removeDead(place: Place, isLastTry: boolean): Promise<boolean> {
  const { options, target, temporary } = place;
  const dead = await findDead(place);
  if (!dead) return true;
  const claimed = `${dirname(target)}/${CLAIM_PREFIX}${dead.ino}-${dead.ctimeNs}`;
  if (!linked(temporary, claimed, options)) {
    // Its owner needs a moment. If it does not come to an end it has died there, and the next start goes on.
    if (isLastTry) removeIfPresent(claimed, options);
    return false;
  }
  try {
    const now = identityOf(target);
    if (now?.ino === dead.ino && now.ctimeNs === dead.ctimeNs) removeIfPresent(target, options);
  } finally {
    removeIfPresent(claimed, options);
  }
  return true;
}

/** The dead socket on the path, or undefined when nothing is there. Throws if something listens, or it is no socket. */
async function findDead({ options, target }: Place): Promise<BigIntStats | undefined> {
  const { path, setting } = options;
  const found = identityOf(target);
  if (!found) return undefined;
  if (!found.isSocket()) {
    const kind = found.isDirectory() ? 'a directory' : found.isSymbolicLink() ? 'a symbolic link' : 'a file';
    throw new SdsdError('ERR_SDSD_SOCKET', `cannot listen on ${path}: ${kind} is in the way`, {
      hint: `remove it, or choose another path with ${setting}`,
    });
  }
  const answer = await probe(fits(path) ? path : target, options.clock, options.greeting);
  if (answer.kind === 'refused' && errnoOf(answer.error) === 'ENOENT') return undefined;
  if (isDead(answer)) return found;
  if (answer.kind === 'mute') {
    throw new SdsdError('ERR_SDSD_SOCKET_IN_USE', `a process listens on ${path}, and answers nothing`, {
      hint: `it is stopped or hangs: end it, or choose another path with ${setting}; ${whoListens(path)}`,
    });
  }
  throw new SdsdError('ERR_SDSD_SOCKET_IN_USE', `another server answers on ${path}`, {
    hint: `stop it, or choose another path with ${setting}; ${whoListens(path)}`,
  });
}

function whoListens(path: string): string {
  return `\`ss -xlp | grep ${dirname(path)}/\` shows which process it is`;
}

function identityOf(path: string): BigIntStats | undefined {
  return lstatSync(path, { throwIfNoEntry: false, bigint: true });
}

function probe(path: string, clock: Clock, greeting: Buffer): Promise<Probe> {
  return probeSocket({ path, greeting, clock, timeoutMs: PROBE_TIMEOUT_MS });
}

/** Not for a lack of permission, a full backlog or a connection that was cut: then somebody lives there. */
function isDead(answer: Probe): boolean {
  return answer.kind === 'refused' && errnoOf(answer.error) === 'ECONNREFUSED';
}

function listener(server: Server, options: ListenOptions, own: Stats): UnixListener {
  const { path } = options;
  const ownsPath = (): boolean => {
    const now = lstatSync(path, { throwIfNoEntry: false });
    return now !== undefined && now.ino === own.ino && now.dev === own.dev;
  };
  return {
    path,
    ownsPath,
    async close() {
      if (ownsPath()) removeIfPresent(path, options);
      await closeServer(server);
    },
  };
}

/** Resolves when the server accepts no more; connections that are open do not delay it. */
function closeServer(server: Server): Promise<void> {
  server.close();
  return Promise.resolve();
}

function removeIfPresent(path: string, options: ListenOptions): void {
  try {
    unlinkSync(path);
  } catch (error) {
    if (errnoOf(error) !== 'ENOENT') throw unusable({ ...options, path }, 'cannot remove the socket', error);
  }
}
