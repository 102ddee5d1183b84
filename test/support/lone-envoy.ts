import { envoyBootstrap } from '../../src/cli/envoy-bootstrap.js';
import { type Envoy, envoyReleases, startEnvoy } from './envoy.js';
import type { HopOptions } from './hop.js';

/** The newest Envoy, or the reason why there is none, as node:test's `skip` takes it. */
export async function newestRelease(): Promise<{ readonly binary: string; readonly skip: string | false }> {
  const { releases, skip } = await envoyReleases();
  return { binary: releases.at(-1)?.binary ?? '', skip };
}

/** An Envoy with an mTLS listener and no traffic: one that comes late, and shows what a new stream is given. */
export function startLoneEnvoy({ binary, api, socket }: HopOptions, nodeId = 'late'): Promise<Envoy> {
  const listen = { host: '127.0.0.1', port: 0 };
  return startEnvoy({
    binary,
    bootstrap: envoyBootstrap({ role: 'server', socket, api, nodeId, listen, adminPort: 0 }),
  });
}
