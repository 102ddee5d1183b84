import type { Clock } from '../clock.js';

/**
 * Versions that grow strictly, within a process and over restarts: microseconds since the epoch, or the last one plus one.
 * They stay exact as JavaScript numbers until the year 2255.
 */
export function versionCounter(clock: Clock): () => number {
  let last = 0;
  return () => {
    last = Math.max(last + 1, Math.floor(clock.now()) * 1_000);
    return last;
  };
}
