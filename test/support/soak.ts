/** Clients that come, subscribe and go, and certificates that rotate, by the thousand: what the daemon holds must not grow. */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import http2 from 'node:http2';
import { connect } from 'node:net';
import { fileURLToPath } from 'node:url';
import { discoveryRequest, sdsMethod } from '../../src/rpc/index.js';
import type { Measure, SoakReply, SoakRequest } from './soak-server.js';
import { temporaryDirectory } from './temp.js';
import { until } from './until.js';

export interface SoakOptions {
  /** Streams that are opened, subscribed, served and cancelled. */
  readonly cycles: number;
  readonly rotations: number;
}

export interface SoakResult {
  /** After a tenth of everything, when caches and compiled code have found their size. */
  readonly before: Measure;
  readonly after: Measure;
}

const STREAMS_PER_CONNECTION = 50;

export async function soak({ cycles, rotations }: SoakOptions): Promise<SoakResult> {
  await using directory = await temporaryDirectory();
  const server = fork(fileURLToPath(new URL('./soak-server.ts', import.meta.url)), {
    cwd: directory.path,
    execArgv: ['--expose-gc', '--import', import.meta.resolve('tsx')],
    env: { ...process.env, SDS_SOCKET: '' },
  });
  try {
    const ready = await reply(server);
    if (ready.kind !== 'ready') throw new Error('the soaked daemon did not start');
    const round = async (part: number): Promise<Measure> => {
      await comeAndGo(ready.socket, cycles * part);
      await ask(server, { kind: 'rotate', times: Math.ceil(rotations * part) });
      return settled(server);
    };
    const before = await round(0.1);
    return { before, after: await round(0.9) };
  } finally {
    if (server.connected) server.send({ kind: 'stop' } satisfies SoakRequest);
    if (server.exitCode === null) await once(server, 'exit');
  }
}

/**
 * What the daemon holds once its streams are gone and nothing more is being given back: the system closes what belongs to a
 * connection a little later than the connection.
 */
async function settled(server: ChildProcess): Promise<Measure> {
  let last: Measure | undefined;
  let same = 0;
  return until('every stream gone, and the rest given back', async () => {
    const { measure } = await ask(server, { kind: 'measure' });
    same = measure.handles === last?.handles && measure.descriptors === last.descriptors ? same + 1 : 0;
    last = measure;
    return measure.streams === 0 && same >= 5 && measure;
  });
}

async function reply(server: ChildProcess): Promise<SoakReply> {
  const [message] = await once(server, 'message');
  return message as SoakReply;
}

async function ask(server: ChildProcess, request: SoakRequest): Promise<Extract<SoakReply, { kind: 'done' }>> {
  server.send(request);
  const answer = await reply(server);
  if (answer.kind !== 'done') throw new Error(`an odd answer: ${answer.kind}`);
  return answer;
}

async function comeAndGo(socket: string, cycles: number): Promise<void> {
  const message = discoveryRequest.encode({ node: { id: 'soak' }, resourceNames: ['default', 'ROOTCA', 'unknown'] });
  const head = Buffer.alloc(5);
  head.writeUInt32BE(message.length, 1);
  const body = Buffer.concat([head, message]);
  for (let done = 0; done < cycles; done += STREAMS_PER_CONNECTION) {
    const session = http2.connect('http://localhost', { createConnection: () => connect(socket) });
    await Promise.all(
      Array.from({ length: STREAMS_PER_CONNECTION }, async (_, index) => {
        const stream = session.request({
          ':method': 'POST',
          ':path': sdsMethod(index % 2 ? 'StreamSecrets' : 'DeltaSecrets'),
          'content-type': 'application/grpc',
          te: 'trailers',
        });
        stream.on('error', () => undefined);
        stream.write(index % 2 ? body : Buffer.alloc(5));
        // One that asks is answered; one that asks wrongly is refused. Both go.
        await once(stream, 'response');
        stream.close(http2.constants.NGHTTP2_CANCEL);
      }),
    );
    session.destroy();
    await once(session, 'close');
  }
}

/** What grew, in words; empty when nothing did. */
export function growth({ before, after }: SoakResult): string[] {
  const faults: string[] = [];
  const grown = (after.heap - before.heap) / 1024 / 1024;
  if (grown > 5) faults.push(`the heap grew by ${grown.toFixed(1)} MB`);
  if (after.handles > before.handles) faults.push(`handles grew from ${before.handles} to ${after.handles}`);
  if (after.descriptors > before.descriptors) {
    faults.push(`descriptors grew from ${before.descriptors} to ${after.descriptors}`);
  }
  return faults;
}
