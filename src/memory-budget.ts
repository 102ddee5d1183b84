/**
 * One bound, in bytes, on what all clients together make the daemon remember: connections, streams, names, unread answers.
 * What is booked is an estimate that was measured, and rather too high.
 */
export class MemoryBudget {
  readonly #limit: number;
  #used = 0;

  /** @param limit bytes. */
  constructor(limit: number) {
    this.#limit = limit;
  }

  get used(): number {
    return this.#used;
  }

  /** Whether so many bytes more stay within the limit. */
  fits(bytes: number): boolean {
    return this.#used + bytes <= this.#limit;
  }

  /** Books bytes for something new; false, and nothing is booked, if that would pass the limit. */
  take(bytes: number): boolean {
    if (!this.fits(bytes)) return false;
    this.#used += bytes;
    return true;
  }

  /** Books what is there already, past the limit too, or gives back what is not (a negative number). */
  add(bytes: number): void {
    this.#used += bytes;
  }
}
