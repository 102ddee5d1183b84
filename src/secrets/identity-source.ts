import type { KeyObject } from 'node:crypto';
import type { Certificate } from '../pki/index.js';

/** Where certificates for identities come from: a CA that signs a CSR, files, another agent. */
export interface IdentitySource {
  /** For a person: "local CA". */
  readonly description: string;
  /**
   * A key with its chain and the roots that verify it. Not verified here. Rejects with an SdsdError, or with the signal's
   * reason when the signal fires.
   */
  obtain(identity: string, signal: AbortSignal): Promise<IssuedIdentity>;
}

export interface IssuedIdentity {
  readonly key: KeyObject;
  /** PEM of the key, in the encoding that clients get. */
  readonly keyPem: Buffer;
  /** Leaf first, without the root. */
  readonly chain: readonly Certificate[];
  readonly roots: readonly Certificate[];
}
