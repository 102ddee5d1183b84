import type { KeyObject } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import { createCsr, encodePrivateKey, generatePrivateKey, type KeyAlgorithm } from '../pki/index.js';
import type { CaClient } from './ca-client.js';
import type { IdentitySource } from './identity-source.js';

export interface CaIdentitySourceOptions {
  readonly ca: CaClient;
  readonly algorithm: KeyAlgorithm;
  readonly encoding: 'pkcs8' | 'traditional';
  /** Lifetime to ask for, in milliseconds. */
  readonly ttl: number;
}

/** How many failed attempts one key may serve, and for how many identities one is kept. */
const MAX_ATTEMPTS_PER_KEY = 20;
const MAX_KEPT_KEYS = 10_000;

/** A key that no certificate has been issued for, and its request. */
interface Unused {
  readonly key: KeyObject;
  readonly csr: Buffer;
  attempts: number;
}

/**
 * Makes a fresh key for each certificate and has its CSR signed by a CA. The key of an attempt that failed serves the next few
 * ones: a CA that is down then costs no key each time.
 */
export function caIdentitySource({ ca, algorithm, encoding, ttl }: CaIdentitySourceOptions): IdentitySource {
  const unused = new LRUCache<string, Unused>({ max: MAX_KEPT_KEYS });
  const take = async (identity: string): Promise<Unused> => {
    const kept = unused.get(identity);
    // Out of sight while it is in use: an attempt at the same time makes its own.
    unused.delete(identity);
    if (kept && kept.attempts < MAX_ATTEMPTS_PER_KEY) return kept;
    const key = await generatePrivateKey(algorithm);
    return { key, csr: createCsr({ key, uriSans: [identity] }), attempts: 0 };
  };
  return {
    description: ca.description,
    async obtain(identity, signal) {
      const request = await take(identity);
      request.attempts += 1;
      try {
        const { chain, roots } = await ca.sign({ csr: request.csr, sans: [identity], ttl }, signal);
        return { key: request.key, keyPem: encodePrivateKey(request.key, encoding), chain, roots };
      } catch (error) {
        unused.set(identity, request);
        throw error;
      }
    },
  };
}
