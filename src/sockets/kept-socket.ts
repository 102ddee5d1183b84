/** A listener that stays reachable: its socket may be deleted under it, by a cleaning job or a careless hand. */
import type { Clock, Timer } from '../clock.js';
import { type ErrorCode, SdsdError } from '../errors.js';
import type { UnixListener } from './unix-socket.js';

const CHECK_EVERY_MS = 1_000;

/** Somebody else is there, and lives. */
const TAKEN: ReadonlySet<ErrorCode> = new Set(['ERR_SDSD_SOCKET_IN_USE', 'ERR_SDSD_STATE_LOCKED']);

export interface KeptSocketOptions {
  /** Listens on the path, anew at each call. */
  readonly listen: () => Promise<UnixListener>;
  readonly clock: Clock;
  /** The socket was gone, and is back. */
  readonly onRestored: () => void;
  /** The socket is gone and cannot be made again for now; tried every second. Told once for each loss. */
  readonly onLost: (error: unknown) => void;
  /** Another server has taken the path: nothing more is tried. */
  readonly onTaken: (error: SdsdError) => void;
}

/** Listens, and once a second looks whether the path still leads here. Rejects as `listen` does the first time. */
export async function keepListening({ listen, ...options }: KeptSocketOptions): Promise<UnixListener> {
  return new KeptSocket(await listen(), { listen, ...options });
}

class KeptSocket implements UnixListener {
  readonly path: string;
  readonly #options: KeptSocketOptions;
  #current: UnixListener;
  #timer: Timer | undefined;
  #checking: Promise<void> = Promise.resolve();
  #isLost = false;
  #isClosed = false;

  constructor(first: UnixListener, options: KeptSocketOptions) {
    this.path = first.path;
    this.#current = first;
    this.#options = options;
    this.#arm();
  }

  ownsPath(): boolean {
    return this.#current.ownsPath();
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#timer?.cancel();
    await this.#checking;
    await this.#current.close();
  }

  #arm(): void {
    const { clock } = this.#options;
    if (this.#isClosed) return;
    this.#timer = clock.at(clock.now() + CHECK_EVERY_MS, () => {
      this.#checking = this.#check();
    });
  }

  /** Never rejects: what goes wrong is told, and tried again. */
  async #check(): Promise<void> {
    const { onLost, onTaken } = this.#options;
    try {
      if (!this.#current.ownsPath()) await this.#restore();
    } catch (error) {
      if (error instanceof SdsdError && TAKEN.has(error.code)) {
        onTaken(error);
        return;
      }
      if (!this.#isLost) onLost(error);
      this.#isLost = true;
    }
    this.#arm();
  }

  async #restore(): Promise<void> {
    const fresh = await this.#options.listen();
    const gone = this.#current;
    this.#current = fresh;
    this.#isLost = false;
    await gone.close();
    if (!this.#isClosed) this.#options.onRestored();
  }
}
