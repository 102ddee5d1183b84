import type { Clock, Timer } from '../clock.js';

interface Entry {
  readonly time: number;
  readonly order: number;
  readonly callback: () => void;
}

/** A clock that stands still until it is advanced. Timers fire in order of time, then of creation. */
export class VirtualClock implements Clock {
  #now: number;
  /** How far `jump` has moved the wall clock, which what happens every so often does not see. */
  #jumped = 0;
  #order = 0;
  readonly #timers = new Set<Entry>();

  /** @param start first value of `now()`, in milliseconds since the epoch. */
  constructor(start = Date.UTC(2030, 0, 1)) {
    this.#now = start;
  }

  now(): number {
    return this.#now;
  }

  at(time: number, callback: () => void): Timer {
    const entry = { time: Number.isNaN(time) ? 0 : time, order: this.#order++, callback };
    this.#timers.add(entry);
    return { cancel: () => this.#timers.delete(entry) };
  }

  every(ms: number, callback: () => void): Timer {
    let timer: Timer;
    const arm = (passed: number): void => {
      const entry = {
        get time() {
          return passed + ms + clock.#jumped;
        },
        order: this.#order++,
        callback: () => {
          arm(passed + ms);
          callback();
        },
      };
      this.#timers.add(entry);
      timer = { cancel: () => this.#timers.delete(entry) };
    };
    const clock = this;
    arm(this.#now - this.#jumped);
    return { cancel: () => timer.cancel() };
  }

  /** Number of timers that wait. */
  get pending(): number {
    return this.#timers.size;
  }

  /** When the next timer is due, in milliseconds since the epoch, or undefined when none waits. */
  get nextDue(): number | undefined {
    return this.#next(Number.POSITIVE_INFINITY)?.time;
  }

  /** Moves time forward by `ms`; timers that become due fire one by one, and what they start is awaited in between. */
  async advance(ms: number): Promise<void> {
    const end = this.#now + ms;
    await settle();
    for (let entry = this.#next(end); entry; entry = this.#next(end)) {
      this.#timers.delete(entry);
      this.#now = Math.max(this.#now, entry.time);
      entry.callback();
      await settle();
    }
    this.#now = end;
    await settle();
  }

  /** Sets the wall clock without firing anything, as if the host had slept or its clock had been stepped. */
  jump(ms: number): void {
    this.#now += ms;
    this.#jumped += ms;
  }

  #next(limit: number): Entry | undefined {
    let best: Entry | undefined;
    for (const entry of this.#timers) {
      if (entry.time > limit) continue;
      if (!best || entry.time < best.time || (entry.time === best.time && entry.order < best.order)) best = entry;
    }
    return best;
  }
}

/** Lets promise chains and work handed to libuv's thread pool (key generation) run to their end. */
async function settle(): Promise<void> {
  for (let turn = 0; turn < 10; turn++) await new Promise((resolve) => setImmediate(resolve));
}
