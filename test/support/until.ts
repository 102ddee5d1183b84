import { setTimeout as sleep } from 'node:timers/promises';

const EVERY_MS = 25;

/**
 * Asks until the answer is neither undefined nor false, and returns it. For what sends no event; rejects after `timeoutMs`
 * with `what` and the last reason why not.
 */
export async function until<T>(
  what: string,
  ask: () => Promise<T | undefined | false> | T | undefined | false,
  timeoutMs = 15_000,
): Promise<T> {
  const deadline = Date.now() + timeoutMs;
  let reason = '';
  for (;;) {
    try {
      const answer = await ask();
      if (answer !== undefined && answer !== false) return answer;
    } catch (error) {
      if (error instanceof Fatal) throw error;
      reason = `: ${String(error)}`;
    }
    if (Date.now() > deadline) throw new Error(`not within ${timeoutMs} ms: ${what}${reason}`);
    await sleep(EVERY_MS);
  }
}

/** Thrown while `until` asks: there is nothing left to wait for. */
export class Fatal extends Error {}
