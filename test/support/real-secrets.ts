/** Secrets that Envoy takes, made one by one, for servers that push them in an order of the test's own. */
import { systemClock } from '../../src/clock.js';
import { type Certificate, joinPem, pathValidity } from '../../src/pki/index.js';
import {
  caIdentitySource,
  ROOTS_NAME,
  type SecretRef,
  type TlsCertificateSecret,
  type ValidationContextSecret,
  WORKLOAD_NAME,
} from '../../src/secrets/index.js';
import { TestCa } from '../../src/testing/test-ca.js';
import { IDENTITY } from './manager.js';

export interface Issuer {
  /** A certificate under the newest root, with its key; each has a higher version than all secrets before. */
  certificate(requires?: SecretRef): Promise<TlsCertificateSecret>;
  /** The trust anchors: all roots that there were, the newest last. */
  roots(): ValidationContextSecret;
  /** Signs under a new root from now on. */
  newRoot(): Promise<Certificate>;
}

export async function createIssuer(): Promise<Issuer> {
  const ca = await TestCa.create(systemClock);
  const algorithm = { kind: 'ecdsa', curve: 'P-256' } as const;
  const source = caIdentitySource({ ca, algorithm, encoding: 'pkcs8', ttl: 3_600_000 });
  const known = [ca.root];
  let version = 1_000;
  return {
    async certificate(requires) {
      const { chain, roots, keyPem } = await source.obtain(IDENTITY, new AbortController().signal);
      return {
        kind: 'tls-certificate',
        name: WORKLOAD_NAME,
        version: ++version,
        source: 'test',
        identity: IDENTITY,
        certificateChain: Buffer.from(joinPem(chain.map(({ pem }) => pem))),
        privateKey: keyPem,
        serialNumber: chain[0]?.serialNumber ?? '',
        ...pathValidity({ chain, roots, now: systemClock.now() }),
        ...(requires && { requires }),
      };
    },
    roots: () => ({
      kind: 'validation-context',
      name: ROOTS_NAME,
      version: ++version,
      source: 'test',
      trustedCa: Buffer.from(joinPem(known.map(({ pem }) => pem))),
      fingerprints: known.map(({ fingerprint }) => fingerprint),
      notAfter: Math.min(...known.map(({ notAfter }) => notAfter)),
    }),
    async newRoot() {
      const root = await ca.newRoot();
      known.push(root);
      return root;
    },
  };
}
