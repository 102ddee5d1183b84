import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { envoyBootstrap } from '../../src/cli/envoy-bootstrap.js';
import { startEnvoy } from './envoy.js';
import { tellingSerials, throughEgress } from './handshakes.js';
import type { Hop, HopOptions } from './hop.js';

/** One Envoy that calls itself over mTLS: a listener and a cluster share its secrets. It is the hop's client and its server. */
export async function startLoop({ binary, api, socket }: HopOptions): Promise<Hop> {
  const serverPort = await freePort();
  const bootstrap = envoyBootstrap({
    ...{ role: 'both', api, socket, nodeId: `${api}-loop`, adminPort: 0, connectionPerRequest: true },
    ...{ listen: { host: '127.0.0.1', port: serverPort }, egress: { host: '127.0.0.1', port: 0 } },
  });
  const envoy = await startEnvoy({ binary, bootstrap: tellingSerials(bootstrap) });
  try {
    return {
      ...{ client: envoy, server: envoy, serverPort },
      attempt: throughEgress(await envoy.listenerPort('egress')),
      untilReady: () => envoy.untilReady(),
      [Symbol.asyncDispose]: async () => {
        await envoy.stop();
      },
    };
  } catch (error) {
    await envoy.stop();
    throw error;
  }
}

/** A port that nobody has now. */
async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}
