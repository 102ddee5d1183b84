import type { IssuedIdentity } from './identity-source.js';

/** Keeps certificates with their keys over a restart, so that one during an outage of the CA serves at once. */
export interface IdentityStore {
  /** What was last saved for this name and SPIFFE ID; undefined when there is nothing that can be used. Never rejects. */
  load(name: string, identity: string): Promise<StoredIdentity | undefined>;
  /** Rejects with ERR_SDSD_STATE; what was saved before is then still there. */
  save(name: string, stored: StoredIdentity): Promise<void>;
}

export interface StoredIdentity {
  readonly identity: string;
  readonly issued: Omit<IssuedIdentity, 'key'>;
  /** When it was obtained, in milliseconds since the epoch: its renewal goes on counting from there. */
  readonly obtainedAt: number;
}
