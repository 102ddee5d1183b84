/**
 * Finds connections that Node 20 leaves open for ever. When a client breaks the rules of HTTP/2 (RFC 9113, section 5.4.1), that
 * Node says goodbye, hears nothing more, the end of the connection least of all, and tells no event. Later versions close it.
 *
 * What a client sends is followed by a ping: a session that hears is answered by any HTTP/2 client at once. Until then an
 * empty frame of a type that nobody knows, which clients ignore (section 5.5), shows whether the peer is still there. A
 * connection on which nothing happens is not asked again, so that idle ones cost nothing.
 */
import type { Http2Session } from 'node:http2';
import type { Socket } from 'node:net';
import type { Clock, Timer } from '../clock.js';

/** How often connections are looked at: while new ones come or a ping is under way, and otherwise. */
const BUSY_MS = 100;
const CALM_MS = 1_000;

/** How long a ping may take, and how many looks at the least: while this process is busy, answers wait to be read. */
const PING_MS = 3_000;
const PING_LOOKS = 3;

/** Length 0, type 0xfe, stream 0. */
const UNKNOWN_FRAME = Buffer.from([0, 0, 0, 0xfe, 0, 0, 0, 0, 0]);

interface Watched {
  readonly session: Http2Session;
  /** What had been read when the last ping was answered. */
  read: number;
  /** The ping that is under way. */
  ping: { readonly since: number; looks: number } | undefined;
}

/** Whether this Node has the fault. */
export const leavesDeafSessions = Number(process.versions.node.split('.')[0]) < 22;

export class DeafSessions {
  readonly #clock: Clock;
  readonly #watched = new Map<Socket, Watched>();
  #timer: Timer | undefined;
  #isCalm = true;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Watches a connection until it is closed, and closes it when its session hears nothing more. */
  watch(socket: Socket, session: Http2Session): void {
    this.#watched.set(socket, { session, read: 0, ping: undefined });
    socket.once('close', () => {
      this.#watched.delete(socket);
      if (this.#watched.size === 0) this.#arm(undefined);
    });
    if (this.#isCalm) this.#arm(BUSY_MS);
  }

  #arm(wait: number | undefined): void {
    this.#timer?.cancel();
    this.#isCalm = wait !== BUSY_MS;
    if (wait !== undefined) this.#timer = this.#clock.at(this.#clock.now() + wait, () => this.#look());
  }

  #look(): void {
    const now = this.#clock.now();
    let isCalm = true;
    for (const [socket, watched] of this.#watched) {
      lookAt(socket, watched, now);
      if (watched.ping) isCalm = false;
    }
    this.#arm(this.#watched.size === 0 ? undefined : isCalm ? CALM_MS : BUSY_MS);
  }
}

function lookAt(socket: Socket, watched: Watched, now: number): void {
  const { ping, session } = watched;
  if (ping) {
    ping.looks += 1;
    if (ping.looks >= PING_LOOKS && now - ping.since >= PING_MS) socket.destroy();
    else socket.write(UNKNOWN_FRAME);
    return;
  }
  if (socket.bytesRead === watched.read) return;
  if (session.destroyed) {
    // Its socket is about to be closed; if it is not, it is closed like a deaf one's.
    watched.ping = { since: now, looks: 0 };
    return;
  }
  const answered = (error: Error | null): void => {
    watched.ping = undefined;
    if (!error) watched.read = socket.bytesRead;
  };
  // False for a session that is ending, or has too many pings under way: asked again at the next look.
  if (session.ping(answered)) watched.ping = { since: now, looks: 0 };
}
