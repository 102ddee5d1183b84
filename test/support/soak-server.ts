/** A daemon in a process of its own that tells what it holds, for the soak. Started with --expose-gc, spoken to over IPC. */
import { readdirSync } from 'node:fs';
import { loadConfig } from '../../src/config/index.js';
import { createDaemon } from '../../src/daemon.js';
import { silentLogger } from '../../src/log.js';

export interface Measure {
  /** Bytes of JavaScript heap after a full collection. */
  readonly heap: number;
  /** What keeps the process alive: sockets, timers, … */
  readonly handles: number;
  readonly descriptors: number;
  readonly streams: number;
}

export type SoakRequest = { readonly kind: 'rotate'; readonly times: number } | { readonly kind: 'measure' | 'stop' };
export type SoakReply =
  | { readonly kind: 'ready'; readonly socket: string }
  | { readonly kind: 'done'; readonly measure: Measure };

const config = await loadConfig({ flags: {}, env: {}, cwd: process.cwd() });
const daemon = await createDaemon({ config, log: silentLogger });
await daemon.ready;

function measure(): Measure {
  for (let round = 0; round < 3; round++) global.gc?.();
  return {
    heap: process.memoryUsage().heapUsed,
    handles: process.getActiveResourcesInfo().length,
    descriptors: readdirSync('/proc/self/fd').length,
    streams: daemon.control.status().subscribers.length,
  };
}

async function answer(request: SoakRequest): Promise<void> {
  if (request.kind === 'rotate') for (let i = 0; i < request.times; i++) await daemon.control.rotate();
  if (request.kind === 'stop') {
    await daemon.close();
    process.disconnect();
    return;
  }
  process.send?.({ kind: 'done', measure: measure() } satisfies SoakReply);
}

process.on('message', (request) => void answer(request as SoakRequest));
process.send?.({ kind: 'ready', socket: daemon.socket } satisfies SoakReply);
