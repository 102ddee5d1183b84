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

/** Makes a fresh key for each certificate and has its CSR signed by a CA. */
export function caIdentitySource({ ca, algorithm, encoding, ttl }: CaIdentitySourceOptions): IdentitySource {
  return {
    description: ca.description,
    async obtain(identity, signal) {
      const key = await generatePrivateKey(algorithm);
      const sans = [identity];
      const { chain, roots } = await ca.sign({ csr: createCsr({ key, uriSans: sans }), sans, ttl }, signal);
      return { key, keyPem: encodePrivateKey(key, encoding), chain, roots };
    },
  };
}
