/**
 * Counts what clients have sent of messages that are not complete: grpc-js keeps all of it, up to 4 MiB for each stream, and
 * a client may open thousands. What is kept is booked like all else that clients make the daemon remember.
 */
import { constants, type Http2Session, type ServerHttp2Stream } from 'node:http2';
import type { MemoryBudget } from '../memory-budget.js';

/** What one connection may have unfinished: a request of Envoy has some 60 KB. */
const MAX_PER_SESSION = 16 * 1024 * 1024;

/** A flag and the length of the message: https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md */
const PREFIX_BYTES = 5;

export class UnfinishedMessages {
  readonly #memory: MemoryBudget;
  readonly #sessions = new WeakMap<Http2Session, { bytes: number }>();

  constructor(memory: MemoryBudget) {
    this.#memory = memory;
  }

  /** Counts what comes on a new stream; resets the stream when it, or all of its connection, keeps too much unfinished. */
  watch(stream: ServerHttp2Stream): void {
    const { session } = stream;
    if (!session) return;
    const ofSession = this.#sessions.get(session) ?? { bytes: 0 };
    this.#sessions.set(session, ofSession);
    const message = new MessageCounter();
    let booked = 0;
    const book = (bytes: number): void => {
      this.#memory.add(bytes - booked);
      ofSession.bytes += bytes - booked;
      booked = bytes;
    };
    stream.on('data', (chunk: Buffer) => {
      message.receive(chunk);
      const { unfinished } = message;
      const isTooMuch =
        ofSession.bytes - booked + unfinished > MAX_PER_SESSION || !this.#memory.fits(unfinished - booked);
      if (unfinished > booked && isTooMuch) stream.close(constants.NGHTTP2_ENHANCE_YOUR_CALM);
      else book(unfinished);
    });
    stream.once('close', () => book(0));
  }
}

/** How much of the message that is not complete has come. */
export class MessageCounter {
  #prefix = Buffer.alloc(0);
  /** Bytes of the message that are missing; undefined while its prefix is. */
  #missing: number | undefined;
  #received = 0;

  get unfinished(): number {
    return this.#received;
  }

  receive(chunk: Buffer): void {
    for (let rest = chunk; rest.length > 0; ) {
      if (this.#missing === undefined) {
        const needed = PREFIX_BYTES - this.#prefix.length;
        this.#prefix = Buffer.concat([this.#prefix, rest.subarray(0, needed)]);
        rest = rest.subarray(needed);
        if (this.#prefix.length < PREFIX_BYTES) return;
        this.#missing = this.#prefix.readUInt32BE(1);
        this.#prefix = Buffer.alloc(0);
      }
      const part = Math.min(rest.length, this.#missing);
      rest = rest.subarray(part);
      this.#missing -= part;
      this.#received += part;
      if (this.#missing > 0) return;
      this.#missing = undefined;
      this.#received = 0;
    }
  }
}
