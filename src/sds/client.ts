import type { Secret } from '../secrets/index.js';
import type { SdsStream } from './stream.js';

/** One connection with all its streams: one Envoy. */
export class Client {
  readonly streams = new Set<SdsStream>();
  /** Those that have rejected something, with the highest version that the connection had been sent by then, lowest first. */
  readonly #rejecting = new Map<SdsStream, number>();
  #highest = 0;

  /** A version goes out on one of its streams. */
  sent(version: number): void {
    this.#highest = Math.max(this.#highest, version);
  }

  rejected(stream: SdsStream): void {
    // At the end of the order, where its number belongs.
    this.#rejecting.delete(stream);
    this.#rejecting.set(stream, this.#highest);
  }

  /** Something changed in what this stream rejects. */
  reconsider(stream: SdsStream): void {
    if (this.#rejecting.has(stream) && !stream.rejects) this.#rejecting.delete(stream);
  }

  remove(stream: SdsStream): void {
    this.streams.delete(stream);
    this.#rejecting.delete(stream);
  }

  /** How many of its streams have rejected something that no newer one has replaced. */
  get rejecting(): number {
    return this.#rejecting.size;
  }

  /** Sends anew what it may have rejected for the fault of a secret whose successor it has just accepted. */
  accepted({ kind, version }: Secret, repaired: boolean): void {
    if (repaired) {
      for (const stream of [...this.streams]) stream.refreshPartners(kind, false);
      return;
    }
    // An Envoy that starts takes a bad certificate unseen, and then rejects the roots for it: so that ACK told nothing, and
    // what counts is that the certificate has changed since.
    for (const [stream, highestThen] of this.#rejecting) {
      if (highestThen >= version) return;
      stream.refreshPartners(kind, true);
    }
  }
}
