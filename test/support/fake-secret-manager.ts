import type { SecretManager } from '../../src/sds/index.js';
import type { Caller, Secret, SecretRef, SecretResult, Subscription } from '../../src/secrets/index.js';

/** A secret manager whose entries a test changes at will. Names that were never set are unknown. */
export class FakeSecretManager implements SecretManager {
  readonly callers: Caller[] = [];
  readonly #results = new Map<string, SecretResult>();
  readonly #leases = new Map<string, Set<(result: SecretResult) => void>>();
  #version = 1_000;

  /** Single answers wait for this. */
  busy: Promise<void> | undefined;

  async generateSecret(name: string): Promise<SecretResult> {
    await this.busy;
    return this.#result(name);
  }

  subscribe(name: string, caller: Caller, onResult: (result: SecretResult) => void): Subscription {
    this.callers.push(caller);
    const listener = (result: SecretResult): void => onResult(result);
    const leases = this.#leases.get(name) ?? new Set();
    this.#leases.set(name, leases.add(listener));
    onResult(this.#result(name));
    return {
      close: () => {
        leases.delete(listener);
        if (leases.size === 0) this.#leases.delete(name);
      },
    };
  }

  /** How many leases there are on a name, or on all. */
  leases(name?: string): number {
    if (name !== undefined) return this.#leases.get(name)?.size ?? 0;
    return [...this.#leases.values()].reduce((sum, { size }) => sum + size, 0);
  }

  set(name: string, result: SecretResult): void {
    this.#results.set(name, result);
    for (const listener of [...(this.#leases.get(name) ?? [])]) listener(result);
  }

  /** Gives the name a new certificate; `text` stands in for its bytes. */
  setCertificate(name: string, text: string, requires?: SecretRef, notAfter = Number.MAX_SAFE_INTEGER): Secret {
    const secret: Secret = {
      kind: 'tls-certificate',
      name,
      version: ++this.#version,
      source: 'test',
      identity: 'spiffe://test/sa',
      certificateChain: Buffer.from(`chain ${text}`),
      privateKey: Buffer.from(`key ${text}`),
      serialNumber: text,
      notBefore: 0,
      notAfter,
      issuersNotAfter: notAfter,
      ...(requires && { requires }),
    };
    this.set(name, { kind: 'secret', secret });
    return secret;
  }

  /** Gives the name a new certificate and says which one was before, as for a name whose change clients may have to wait for. */
  replaceCertificate(name: string, text: string, requires: SecretRef): void {
    const current = this.#result(name);
    const secret = this.setCertificate(name, text, requires);
    this.set(name, { kind: 'secret', secret, ...(current.kind === 'secret' && { before: current.secret }) });
  }

  setRoots(text: string): Secret {
    const secret: Secret = {
      kind: 'validation-context',
      name: 'ROOTCA',
      version: ++this.#version,
      source: 'test',
      trustedCa: Buffer.from(`roots ${text}`),
      fingerprints: [text],
      notAfter: Number.MAX_SAFE_INTEGER,
    };
    this.set('ROOTCA', { kind: 'secret', secret });
    return secret;
  }

  #result(name: string): SecretResult {
    return this.#results.get(name) ?? { kind: 'denied', reason: 'unknown', why: 'the test does not know it' };
  }
}
