import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { systemClock } from '../../src/clock.js';
import { silentLogger } from '../../src/log.js';
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
  /** A client with a connection of its own. */
  connect(): SdsTestClient;
}

export interface TestServerLimits {
  readonly maxStreams?: number;
  readonly maxNamesPerStream?: number;
  readonly maxConnections?: number;
}

/** Our SDS server on a socket of its own, over a fake secret manager with `default` and `ROOTCA`. */
export async function startTestServer({
  maxConnections = 10_000,
  maxStreams = 100_000,
  maxNamesPerStream = 10_000,
}: TestServerLimits = {}): Promise<TestServer> {
  const directory = await mkdtemp(join(tmpdir(), 'sdsd-'));
  const socket = join(directory, 'socket');
  const manager = new FakeSecretManager();
  manager.setRoots('r1');
  manager.setCertificate('default', 'c1');
  const clock = new VirtualClock();
  const faults: unknown[] = [];
  const sds = new SdsServer({ manager, clock, log: silentLogger, ackTimeoutMs: 10_000, maxStreams, maxNamesPerStream });
  const rpc = new RpcServer({
    onFault: (_, error) => faults.push(error),
    clock,
    maxConnections,
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
