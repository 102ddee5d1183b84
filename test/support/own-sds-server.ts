import { systemClock } from '../../src/clock.js';
import { createLogger } from '../../src/log.js';
import { MemoryBudget } from '../../src/memory-budget.js';
import { type Decode, RpcServer, type StreamCall, type StreamHandler } from '../../src/rpc/index.js';
import { SdsServer } from '../../src/sds/index.js';
import { FakeSecretManager } from './fake-secret-manager.js';

export interface OwnServerOptions {
  /** Where it listens; its directory must exist. */
  readonly socket: string;
  /** Default: ten seconds. */
  readonly ackTimeoutMs?: number;
}

/** Our SDS server over a fake secret manager without a secret, in real time, for Envoys that shall meet what no daemon sends. */
export interface OwnServer extends AsyncDisposable {
  readonly manager: FakeSecretManager;
  readonly sds: SdsServer;
  /** Responses sent on streams so far. */
  sent(): number;
  /** From now on each response goes through this on its way to the client; undefined: as it is. */
  tamper(change: ((message: Buffer, path: string) => Buffer) | undefined): void;
  /** What clients said in their requests, word for word, before anything was taken out. */
  readonly requests: readonly unknown[];
  log(): string;
}

export async function startOwnServer({ socket, ackTimeoutMs = 10_000 }: OwnServerOptions): Promise<OwnServer> {
  let output = '';
  const stream = {
    write: (text: string): void => {
      output += text;
    },
  };
  const log = createLogger({ level: 'debug', stream, clock: systemClock, color: false });
  const manager = new FakeSecretManager();
  const memory = new MemoryBudget(1024 ** 3);
  const sds = new SdsServer({
    manager,
    clock: systemClock,
    log,
    ackTimeoutMs,
    memory,
    maxStreams: 100,
    maxNamesPerStream: 10,
  });
  const rpc = new WatchedRpcServer({
    clock: systemClock,
    maxConnections: 100,
    memory,
    onFault: (path, error) => log.error('a call failed', { path, error }),
    onRefused: (why) => log.error(why),
  });
  sds.register(rpc);
  const listener = await rpc.listen({ path: socket, mode: 0o660, setting: '--socket', clock: systemClock });
  return {
    manager,
    sds,
    sent: () => rpc.sent,
    tamper: (change) => {
      rpc.change = change;
    },
    requests: rpc.requests,
    log: () => output,
    [Symbol.asyncDispose]: async () => {
      sds.close();
      await listener.close();
      await rpc.close(100);
    },
  };
}

class WatchedRpcServer extends RpcServer {
  sent = 0;
  change: ((message: Buffer, path: string) => Buffer) | undefined;
  readonly requests: unknown[] = [];

  override addStream<Request>(
    path: string,
    decode: Decode<Request>,
    open: (call: StreamCall) => StreamHandler<Request>,
  ): void {
    super.addStream(path, decode, (call) => {
      const handler = open({
        connectionId: call.connectionId,
        send: (message, written) => {
          this.sent += 1;
          call.send(this.change?.(message, path) ?? message, written);
        },
        end: (end) => call.end(end),
      });
      return {
        message: (request) => {
          if (request.ok) this.requests.push(request.value);
          handler.message(request);
        },
        closed: () => handler.closed(),
      };
    });
  }
}
