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
import { connect, type Server, type Socket } from 'node:net';
import { basename, dirname } from 'node:path';
import { type Clock, sleep } from '../clock.js';
import { makeDirectories } from '../directories.js';
import { errnoOf, messageOf, SdsdError } from '../errors.js';

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

const PROBE_TRIES = 3;
const PROBE_TIMEOUT_MS = 1_000;

export interface ListenOptions {
  /** Absolute path of the socket. Missing directories are made. */
  readonly path: string;
  /** Permission bits of the socket, such as 0o660: it never exists with others. */
  readonly mode: number;
  /** What is sent to a socket that is already there, to see whether its server answers: the first bytes of its protocol. */
  readonly greeting: Buffer;
  /** Told when a socket whose server accepted but stayed mute was replaced. */
  readonly onMute?: (path: string) => void;
  /** A server that accepts and stays mute lives, and keeps the path: for a lock, accepting is enough. Default false. */
  readonly muteLives?: boolean;
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
 * then linked to `path`, which fails if the path exists: of two servers that start at once, one gets it. A dead socket in
 * the way is removed: nothing accepts, or nothing is answered in three tries of a second.
 *
 * Throws ERR_SDSD_SOCKET_IN_USE if a server answers there, and ERR_SDSD_SOCKET for everything else that stands in the way.
 */
export async function listenUnix(server: Server, options: ListenOptions): Promise<UnixListener> {
  const { path } = options;
  if (!options.anyLength) checkLength(path);
  const directory = openDirectory(dirname(path));
  try {
    const own = `${directory.prefix}${TEMPORARY_PREFIX}${process.pid}-${randomBytes(4).toString('hex')}`;
    const place: Place = {
      path,
      target: `${directory.prefix}${basename(path)}`,
      temporary: own,
    };
    const { temporary } = place;
    await sweep(directory.prefix);
    await bind(server, place);
    try {
      chmodSync(temporary, options.mode);
      await claim(place, options);
      const socket = lstatSync(temporary);
      unlinkSync(temporary);
      return listener(server, path, socket);
    } catch (error) {
      await closeServer(server);
      throw error;
    }
  } catch (error) {
    throw error instanceof SdsdError ? error : unusable(path, 'cannot listen on the socket', error);
  } finally {
    directory.close();
  }
}

/** Removes what a start left behind that was killed between binding and linking. */
async function sweep(prefix: string): Promise<void> {
  for (const name of readdirSync(prefix)) {
    if (!name.startsWith(TEMPORARY_PREFIX)) continue;
    if ((await probeOnce(`${prefix}${name}`, Buffer.alloc(0))) === 'refused') removeIfPresent(`${prefix}${name}`);
  }
}

/** Names in the socket's directory, reached through its descriptor: so they are short, however long the path is. */
interface Place {
  /** As the user gave it, for messages. */
  readonly path: string;
  readonly target: string;
  readonly temporary: string;
}

function fits(path: string): boolean {
  return Buffer.byteLength(path) <= MAX_SOCKET_PATH_BYTES;
}

function checkLength(path: string): void {
  if (fits(path)) return;
  const bytes = Buffer.byteLength(path);
  throw new SdsdError(
    'ERR_SDSD_SOCKET',
    `cannot listen on ${path}: the path has ${bytes} bytes, and a Unix socket's path may have ${MAX_SOCKET_PATH_BYTES}`,
    { hint: 'choose a shorter path, for example below /run or /tmp, with --socket or SDS_SOCKET' },
  );
}

function openDirectory(path: string): { prefix: string; close(): void } {
  try {
    makeDirectories(path);
    if (process.platform !== 'linux') return { prefix: `${path}/`, close: () => undefined };
    const descriptor = openSync(path, constants.O_RDONLY | constants.O_DIRECTORY);
    return { prefix: `/proc/self/fd/${descriptor}/`, close: () => closeSync(descriptor) };
  } catch (error) {
    throw unusable(path, 'the directory for the socket cannot be made or opened', error);
  }
}

function unusable(path: string, what: string, error: unknown): SdsdError {
  return new SdsdError('ERR_SDSD_SOCKET', `${what}: ${path}: ${messageOf(error)}`, {
    hint: 'make a directory that this user may write to, or choose another path with --socket or SDS_SOCKET',
    cause: error,
  });
}

function bind(server: Server, { temporary, path }: Place): Promise<void> {
  removeIfPresent(temporary);
  return new Promise((resolve, reject) => {
    const onError = (error: Error): void => reject(unusable(path, 'cannot listen on the socket', error));
    server.once('error', onError);
    server.listen({ path: temporary, backlog: BACKLOG }, () => {
      server.removeListener('error', onError);
      resolve();
    });
  });
}

/** Links the socket to its path; removes what is dead there, and gives up if something lives. */
async function claim(place: Place, options: ListenOptions): Promise<void> {
  for (let tries = 0; tries < CLAIM_TRIES; tries++) {
    if (linked(place.temporary, place.target, place.path)) return;
    if (!(await removeDead(place, options, tries === CLAIM_TRIES - 1))) await sleep(options.clock, CLAIM_PAUSE_MS);
  }
  throw new SdsdError('ERR_SDSD_SOCKET_IN_USE', `${place.path} stays taken while it changes hands`, {
    hint: 'try again; if that does not help, see with `ss -xlp` which processes listen there, and stop all but one',
  });
}

/** False if `to` exists. */
function linked(from: string, to: string, path: string): boolean {
  try {
    linkSync(from, to);
    return true;
  } catch (error) {
    if (errnoOf(error) === 'EEXIST') return false;
    throw unusable(path, 'cannot put the socket in place', error);
  }
}

/**
 * Removes a dead socket from the path; false if another server is about to.
 *
 * Of several servers that find the same dead socket, one may remove it: who links its own socket to a name that stands for
 * that very file. The others cannot take a living socket for the dead one, whatever their timing: while the dead one is
 * there nothing else can be linked to the path, and once it is gone its name is of no use to them.
 */
async function removeDead(place: Place, options: ListenOptions, isLastTry: boolean): Promise<boolean> {
  const { path, target, temporary } = place;
  const dead = await findDead(place, options);
  if (!dead) return true;
  const claimed = `${dirname(target)}/${CLAIM_PREFIX}${dead.ino}-${dead.ctimeNs}`;
  if (!linked(temporary, claimed, path)) {
    // Its owner needs a moment. If it does not come to an end it has died there, and the next start goes on.
    if (isLastTry) removeIfPresent(claimed);
    return false;
  }
  try {
    const now = identityOf(target);
    if (now?.ino === dead.ino && now.ctimeNs === dead.ctimeNs) removeIfPresent(target);
  } finally {
    removeIfPresent(claimed);
  }
  return true;
}

/** The dead socket on the path, or undefined when nothing is there. Throws if it lives, or is no socket. */
async function findDead({ path, target }: Place, options: ListenOptions): Promise<BigIntStats | undefined> {
  const found = identityOf(target);
  if (!found) return undefined;
  if (!found.isSocket()) {
    const kind = found.isDirectory() ? 'a directory' : found.isSymbolicLink() ? 'a symbolic link' : 'a file';
    throw new SdsdError('ERR_SDSD_SOCKET', `cannot listen on ${path}: ${kind} is in the way`, {
      hint: 'remove it, or choose another path with --socket or SDS_SOCKET',
    });
  }
  const answer = await probeSocket(fits(path) ? path : target, options.greeting);
  if (answer === 'answers' || (answer === 'mute' && options.muteLives)) {
    throw new SdsdError('ERR_SDSD_SOCKET_IN_USE', `another server answers on ${path}`, {
      hint: 'stop it, or choose another path with --socket or SDS_SOCKET',
    });
  }
  if (answer === 'mute') options.onMute?.(path);
  return answer === 'absent' ? undefined : found;
}

function identityOf(path: string): BigIntStats | undefined {
  return lstatSync(path, { throwIfNoEntry: false, bigint: true });
}

/**
 * What stands behind a socket: `refused` (nothing accepts), `mute` (accepts, and answers nothing in three tries of a
 * second), `answers`, or `absent`.
 */
export async function probeSocket(path: string, greeting: Buffer): Promise<'absent' | 'refused' | 'mute' | 'answers'> {
  for (let tries = 0; tries < PROBE_TRIES; tries++) {
    const answer = await probeOnce(path, greeting);
    if (answer !== 'mute') return answer;
  }
  return 'mute';
}

function probeOnce(path: string, greeting: Buffer): Promise<'absent' | 'refused' | 'mute' | 'answers'> {
  return new Promise((resolve) => {
    const socket: Socket = connect(path);
    const finish = (answer: 'absent' | 'refused' | 'mute' | 'answers'): void => {
      socket.destroy();
      resolve(answer);
    };
    socket.setTimeout(PROBE_TIMEOUT_MS, () => finish('mute'));
    socket.once('connect', () => socket.write(greeting));
    socket.once('data', () => finish('answers'));
    socket.once('error', (error) => {
      const errno = errnoOf(error);
      if (errno === 'ENOENT') finish('absent');
      else if (errno === 'ECONNREFUSED') finish('refused');
      // Not allowed to connect, the backlog is full, or the connection was cut: somebody lives there who may be full.
      else finish('answers');
    });
    socket.once('close', () => finish('answers'));
  });
}

function listener(server: Server, path: string, own: Stats): UnixListener {
  const ownsPath = (): boolean => {
    const now = statIfPresent(path);
    return now !== undefined && now.ino === own.ino && now.dev === own.dev;
  };
  return {
    path,
    ownsPath,
    async close() {
      if (ownsPath()) removeIfPresent(path);
      await closeServer(server);
    },
  };
}

/** Resolves when the server accepts no more; connections that are open do not delay it. */
function closeServer(server: Server): Promise<void> {
  server.close();
  return Promise.resolve();
}

function statIfPresent(path: string): Stats | undefined {
  return lstatSync(path, { throwIfNoEntry: false });
}

function removeIfPresent(path: string): void {
  try {
    unlinkSync(path);
  } catch (error) {
    if (errnoOf(error) !== 'ENOENT') throw unusable(path, 'cannot remove the socket', error);
  }
}
