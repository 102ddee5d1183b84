import type { Clock } from '../clock.js';

export interface VersionCounter {
  /** The last one that was given; 0 before the first. */
  readonly last: number;
  /** A version greater than all before. */
  next(): number;
  /** No version from now on is less than this one, which an earlier process has used. */
  atLeast(version: number): void;
}

/**
 * Versions that grow strictly: microseconds since the epoch, or the last one plus one. They grow over restarts too, also when
 * the clock was set back meanwhile, for what an earlier process may have given is stored beforehand (`trust-bundle-secret.ts`).
 * They stay exact as JavaScript numbers until the year 2255.
 */
export function versionCounter(clock: Clock): VersionCounter {
  let last = 0;
  return {
    get last() {
      return last;
    },
    next() {
      last = Math.max(last + 1, Math.floor(clock.now()) * 1_000);
      return last;
    },
    atLeast(version) {
      last = Math.max(last, version);
    },
  };
}
