import type { Caller, SecretResult, Subscription } from '../secrets/index.js';

/** What the SDS server asks of the one who makes the secrets. */
export interface SecretManager {
  /** One answer, now: waits for an attempt that is under way, and never for the next. */
  generateSecret(resourceName: string, caller: Caller): Promise<SecretResult>;
  /**
   * A lease on the name: `onResult` is called with what there is before this returns, and again at each change, until
   * the subscription is closed.
   */
  subscribe(resourceName: string, caller: Caller, onResult: (result: SecretResult) => void): Subscription;
}
