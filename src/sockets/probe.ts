import { connect } from 'node:net';
import type { Clock } from '../clock.js';

/** What a new connection to a Unix socket meets. */
export type Probe =
  /** The first bytes of the answer, as many as were asked for or more. */
  | { readonly kind: 'answers'; readonly bytes: Buffer }
  /** The connection does not even come about. */
  | { readonly kind: 'refused'; readonly error: Error }
  /** It is closed before an answer. */
  | { readonly kind: 'closed' }
  /** Somebody listens, and says nothing. */
  | { readonly kind: 'mute' };

export interface ProbeOptions {
  readonly path: string;
  /** What is sent: the first bytes of the protocol that the server should speak. */
  readonly greeting: Buffer;
  /** How many bytes are waited for. Default: 1. */
  readonly least?: number;
  readonly clock: Clock;
  /** Milliseconds. */
  readonly timeoutMs: number;
}

/** Connects, and waits for the first bytes of an answer. Never rejects. */
export function probeSocket({ path, greeting, least = 1, clock, timeoutMs }: ProbeOptions): Promise<Probe> {
  return new Promise((resolve) => {
    const socket = connect(path);
    const timer = clock.at(clock.now() + timeoutMs, () => end({ kind: 'mute' }));
    const end = (probe: Probe): void => {
      timer.cancel();
      socket.destroy();
      resolve(probe);
    };
    let connected = false;
    let bytes = Buffer.alloc(0);
    socket.on('connect', () => {
      connected = true;
      socket.write(greeting);
    });
    socket.on('data', (chunk: Buffer) => {
      bytes = Buffer.concat([bytes, chunk]);
      if (bytes.length >= least) end({ kind: 'answers', bytes });
    });
    socket.on('error', (error) => end(connected ? { kind: 'closed' } : { kind: 'refused', error }));
    socket.on('close', () => end({ kind: 'closed' }));
  });
}
