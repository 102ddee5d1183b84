import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { systemClock } from '../../src/clock.js';
import { createLogger } from '../../src/log.js';
import { MemoryBudget } from '../../src/memory-budget.js';
import { RpcServer } from '../../src/rpc/index.js';
import { SdsServer } from '../../src/sds/index.js';
import { VirtualClock } from '../../src/testing/virtual-clock.js';
import { FakeSecretManager } from './fake-secret-manager.js';
import { SdsTestClient } from './sds-client.js';

export interface TestServer extends AsyncDisposable {
  readonly socket: string;
  readonly manager: FakeSecretManager;
  readonly sds: SdsServer;
  readonly rpc: RpcServer;
  readonly clock: VirtualClock;
  /** Faults of ours that calls were ended for. */
  readonly faults: unknown[];
  readonly memory: MemoryBudget;
  /** What was logged. */
  readonly lines: readonly string[];
  /** A client with a connection of its own. */
  connect(): SdsTestClient;
}

export interface TestServerLimits {
  readonly maxStreams?: number;
  readonly maxNamesPerStream?: number;
  readonly maxConnections?: number;
  /** Bytes. */
  readonly maxMemory?: number;
}

/** Our SDS server on a socket of its own, over a fake secret manager with `default` and `ROOTCA`. */
export async function startTestServer({
  maxConnections = 10_000,
  maxStreams = 100_000,
  maxNamesPerStream = 10_000,
  maxMemory = 1024 ** 3,
}: TestServerLimits = {}): Promise<TestServer> {
  const directory = await mkdtemp(join(tmpdir(), 'sdsd-'));
  const socket = join(directory, 'socket');
  const manager = new FakeSecretManager();
  manager.setRoots('r1');
  manager.setCertificate('default', 'c1');
  const clock = new VirtualClock();
  const faults: unknown[] = [];
  const memory = new MemoryBudget(maxMemory);
  const lines: string[] = [];
  const log = createLogger({
    level: 'info',
    stream: { write: (line: string) => lines.push(line) },
    clock,
    color: false,
  });
  const sds = new SdsServer({ manager, clock, log, ackTimeoutMs: 10_000, memory, maxStreams, maxNamesPerStream });
  const rpc = new RpcServer({
    onFault: (_, error) => faults.push(error),
    clock,
    maxConnections,
    memory,
    onRefused: () => undefined,
  });
  sds.register(rpc);
  const listener = await rpc.listen({ path: socket, mode: 0o660, setting: '--socket', clock: systemClock });
  const clients: SdsTestClient[] = [];
  return {
    socket,
    manager,
    sds,
    rpc,
    clock,
    faults,
    memory,
    lines,
    connect() {
      const client = new SdsTestClient(socket);
      clients.push(client);
      return client;
    },
    async [Symbol.asyncDispose]() {
      for (const client of clients) client.close();
      sds.close();
      await listener.close();
      await rpc.close(100);
      await rm(directory, { recursive: true });
    },
  };
}
