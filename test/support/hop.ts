import { envoyBootstrap, type SdsApi } from '../../src/cli/envoy-bootstrap.js';
import { type Envoy, startEnvoy } from './envoy.js';
import { type FlowOptions, tellingSerials, throughEgress } from './handshakes.js';

export interface HopOptions {
  readonly binary: string;
  readonly api: SdsApi;
  /** The daemon's socket; it need not exist yet. */
  readonly socket: string;
}

/** Two Envoys: HTTP goes into the first one, over mTLS to the second one, and `hello` comes back. */
export interface Hop extends AsyncDisposable {
  readonly client: Envoy;
  readonly server: Envoy;
  readonly serverPort: number;
  /** One request over a new mTLS connection between the two. */
  readonly attempt: FlowOptions['attempt'];
  untilReady(): Promise<void>;
}

/** Resolves when both run, with certificates or not yet. */
export async function startHop({ binary, api, socket }: HopOptions): Promise<Hop> {
  const anyPort = { host: '127.0.0.1', port: 0 };
  const common = { socket, api, adminPort: 0 };
  const servers = envoyBootstrap({ ...common, role: 'server', nodeId: `${api}-server`, listen: anyPort });
  const server = await startEnvoy({ binary, bootstrap: tellingSerials(servers) });
  try {
    const serverPort = await server.listenerPort('server');
    const upstream = { host: '127.0.0.1', port: serverPort };
    const clients = envoyBootstrap({
      ...{ ...common, role: 'client', nodeId: `${api}-client`, egress: anyPort, upstream, connectionPerRequest: true },
    });
    const client = await startEnvoy({ binary, bootstrap: tellingSerials(clients) });
    return {
      client,
      server,
      serverPort,
      attempt: throughEgress(await client.listenerPort('egress')),
      untilReady: async () => {
        await Promise.all([server.untilReady(), client.untilReady()]);
      },
      [Symbol.asyncDispose]: async () => {
        await Promise.all([server.stop(), client.stop()]);
      },
    };
  } catch (error) {
    await server.stop();
    throw error;
  }
}
