/** A listener that stays reachable: its socket may be deleted under it, by a cleaning job or a careless hand. */
import type { Clock, Timer } from '../clock.js';
import { SdsdError } from '../errors.js';
import type { UnixListener } from './unix-socket.js';

const CHECK_EVERY_MS = 1_000;

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
export async function keepListening(options: KeptSocketOptions): Promise<UnixListener> {
  const { listen, clock, onRestored, onLost, onTaken } = options;
  let current = await listen();
  let closed = false;
  let lost = false;
  let timer: Timer = next();

  function next(): Timer {
    return clock.at(clock.now() + CHECK_EVERY_MS, () => void check());
  }

  async function check(): Promise<void> {
    if (!current.ownsPath() && !(await restore())) return;
    if (!closed) timer = next();
  }

  /** False when there is nothing left to try. */
  async function restore(): Promise<boolean> {
    try {
      const fresh = await listen();
      await current.close();
      current = fresh;
      lost = false;
      if (closed) await fresh.close();
      else onRestored();
    } catch (error) {
      if (error instanceof SdsdError && error.code === 'ERR_SDSD_SOCKET_IN_USE') {
        onTaken(error);
        return false;
      }
      if (!lost) onLost(error);
      lost = true;
    }
    return true;
  }

  return {
    path: current.path,
    ownsPath: () => current.ownsPath(),
    async close() {
      closed = true;
      timer.cancel();
      await current.close();
    },
  };
}
