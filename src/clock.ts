/**
 * The one source of time. Everything that waits or compares times takes a `Clock`, so that tests run in virtual time.
 */
export interface Clock {
  /** Wall-clock time in milliseconds since the Unix epoch. */
  now(): number;
  /**
   * Calls `callback` once, as soon as `now()` has reached `time` (milliseconds since the epoch; at once when it has passed).
   * The wall clock decides, not the elapsed time: a host that slept, or whose clock was stepped, is noticed within
   * {@link RECHECK_MS}. A `time` that is not a number counts as now.
   */
  at(time: number, callback: () => void): Timer;
  /** Calls `callback` every `ms` milliseconds that pass, whatever the wall clock does meanwhile. Keeps no process alive. */
  every(ms: number, callback: () => void): Timer;
}

export interface Timer {
  cancel(): void;
}

/** No timer sleeps longer than this before it looks at the wall clock again. Also keeps delays below Node's 2^31 − 1 ms. */
const RECHECK_MS = 30_000;

export const systemClock: Clock = {
  now: () => Date.now(),
  at(time, callback) {
    const due = Number.isNaN(time) ? 0 : time;
    let handle: NodeJS.Timeout;
    const arm = (): void => {
      const wait = due - Date.now();
      handle = wait <= 0 ? setTimeout(callback, 0) : setTimeout(arm, Math.min(wait, RECHECK_MS));
    };
    arm();
    return { cancel: () => clearTimeout(handle) };
  },
  every(ms, callback) {
    const handle = setInterval(callback, ms).unref();
    return { cancel: () => clearInterval(handle) };
  },
};

/** Resolves after `ms` milliseconds of `clock`, or rejects with the signal's reason. */
export function sleep(clock: Clock, ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const onAbort = (): void => {
      timer.cancel();
      reject(signal?.reason);
    };
    const timer = clock.at(clock.now() + ms, () => {
      signal?.removeEventListener('abort', onAbort);
      resolve();
    });
    signal?.addEventListener('abort', onAbort, { once: true });
  });
}

/** A point in time without fractions of a second: 2030-01-01T00:00:00Z. */
export function isoSeconds(time: number): string {
  return new Date(time).toISOString().replace(/\.\d{3}Z$/, 'Z');
}
