import type { Clock } from '../clock.js';

export interface VersionCounter {
  /** A version greater than all before. */
  next(): number;
  /** No version from now on is less than this one, which an earlier process has used. */
  atLeast(version: number): void;
}

/**
 * Versions that grow strictly, within a process and over restarts: microseconds since the epoch, or the last one plus one.
 * They stay exact as JavaScript numbers until the year 2255.
 */
export function versionCounter(clock: Clock): VersionCounter {
  let last = 0;
  return {
    next() {
      last = Math.max(last + 1, Math.floor(clock.now()) * 1_000);
      return last;
    },
    atLeast(version) {
      last = Math.max(last, version);
    },
  };
}
