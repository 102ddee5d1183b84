import { silentLogger } from '../../src/log.js';
import {
  CachingSecretManager,
  caIdentitySource,
  type SecretManagerOptions,
  type SecretResult,
  type TlsCertificateSecret,
  type TrustBundleStore,
  type ValidationContextSecret,
} from '../../src/secrets/index.js';
import { TestCa } from '../../src/testing/test-ca.js';
import { VirtualClock } from '../../src/testing/virtual-clock.js';

export const IDENTITY = 'spiffe://cluster.local/ns/default/sa/default';
export const CALLER = { connectionId: 'c1', nodeId: 'test' };

/** Keeps the trust anchors in memory; `stored` outlives the manager, as a file would. */
export function memoryStore(): TrustBundleStore & { saves: number; fails: boolean } {
  let stored: Awaited<ReturnType<TrustBundleStore['load']>> = { version: 0, anchors: new Map() };
  const store = {
    saves: 0,
    fails: false,
    load: async () => stored,
    save: async (state: typeof stored) => {
      if (store.fails) throw new Error('the disk is full');
      store.saves += 1;
      stored = state;
    },
  };
  return store;
}

export interface TestManager extends AsyncDisposable {
  readonly manager: CachingSecretManager;
  readonly ca: TestCa;
  readonly clock: VirtualClock;
  readonly store: ReturnType<typeof memoryStore>;
  /** What was logged: level and message. */
  readonly logged: string[];
}

export type TestManagerOptions = Partial<SecretManagerOptions> & {
  readonly ca?: TestCa;
  readonly clock?: VirtualClock;
  readonly memory?: ReturnType<typeof memoryStore>;
};

/** A secret manager in virtual time over a test CA: lifetime one hour, renewed at half of it, no jitter. */
export async function startManager(options: TestManagerOptions = {}): Promise<TestManager> {
  const clock = options.clock ?? new VirtualClock();
  const ca = options.ca ?? (await TestCa.create(clock));
  const store = options.memory ?? memoryStore();
  const logged: string[] = [];
  const ttl = options.ttl ?? 3_600_000;
  const manager = new CachingSecretManager({
    source: caIdentitySource({ ca, algorithm: { kind: 'ecdsa', curve: 'P-256' }, encoding: 'pkcs8', ttl }),
    store,
    identities: new Map([['default', IDENTITY]]),
    renewal: { gracePeriodRatio: 0.5, gracePeriodRatioJitter: 0 },
    clock,
    random: () => 0.5,
    log: {
      ...silentLogger,
      info: (message) => logged.push(`info: ${message}`),
      warn: (message) => logged.push(`warn: ${message}`),
      error: (message) => logged.push(`error: ${message}`),
    },
    ...options,
    ttl,
  });
  await manager.start();
  return {
    manager,
    ca,
    clock,
    store,
    logged,
    [Symbol.asyncDispose]: () => manager.close(),
  };
}

export function certificateOf(result: SecretResult | undefined): TlsCertificateSecret {
  if (result?.kind === 'secret' && result.secret.kind === 'tls-certificate') return result.secret;
  throw new Error(`not a certificate: ${JSON.stringify(result?.kind)}`);
}

export function rootsOf(result: SecretResult | undefined): ValidationContextSecret {
  if (result?.kind === 'secret' && result.secret.kind === 'validation-context') return result.secret;
  throw new Error(`not trust anchors: ${JSON.stringify(result?.kind)}`);
}
