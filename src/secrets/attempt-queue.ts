import pLimit from 'p-limit';
import { type Clock, sleep } from '../clock.js';

/** How many attempts run at once; and while every one fails, so that a CA that is down, or coming back, is not flooded. */
const MAX_ATTEMPTS = 8;
const MAX_ATTEMPTS_IN_OUTAGE = 2;
/** How long the place of a failed attempt stays taken then, in milliseconds. */
const PAUSE_MS = 100;

/** So many failures in a row, of more than one identity, are an outage; of one alone they are its own affair. */
const OUTAGE_FAILURES = 3;

export interface AttemptQueueOptions {
  readonly clock: Clock;
  /** The first attempt after an outage has succeeded: what waits for its time need not wait any longer. */
  readonly onRecovered: () => void;
}

/** Runs attempts to get certificates from one source, few at once. */
export class AttemptQueue {
  readonly #options: AttemptQueueOptions;
  readonly #limit = pLimit(MAX_ATTEMPTS);
  #failures = 0;
  /** Whose attempt failed last, and whether others failed before it in the same row. */
  #lastFailed: string | undefined;
  #severalFailed = false;

  constructor(options: AttemptQueueOptions) {
    this.#options = options;
  }

  /** Every attempt fails, whoever asks. */
  get isOutage(): boolean {
    return this.#failures >= OUTAGE_FAILURES && this.#severalFailed;
  }

  /**
   * Runs an attempt for an identity when it is its turn. Settles as the attempt does.
   * @param givenUp fires when nobody wants the certificate any more.
   */
  run<T>(identity: string, attempt: () => Promise<T>, givenUp: AbortSignal): Promise<T> {
    return this.#limit(async () => {
      try {
        const result = await attempt();
        this.#succeeded();
        return result;
      } catch (error) {
        // An attempt that was given up says nothing of the source.
        if (!givenUp.aborted) {
          this.#failed(identity);
          if (this.isOutage) await sleep(this.#options.clock, PAUSE_MS, givenUp).catch(() => undefined);
        }
        throw error;
      }
    });
  }

  #succeeded(): void {
    const wasOutage = this.isOutage;
    this.#failures = 0;
    this.#lastFailed = undefined;
    this.#severalFailed = false;
    if (!wasOutage) return;
    this.#limit.concurrency = MAX_ATTEMPTS;
    this.#options.onRecovered();
  }

  #failed(identity: string): void {
    this.#failures += 1;
    this.#severalFailed ||= this.#lastFailed !== undefined && this.#lastFailed !== identity;
    this.#lastFailed = identity;
    if (this.isOutage) this.#limit.concurrency = MAX_ATTEMPTS_IN_OUTAGE;
  }
}
