import type { Certificate } from '../pki/index.js';

/** What the secret manager asks of a CA. */
export interface CaClient {
  /** For a person: "local CA", "https://vault.example:8200". */
  readonly description: string;
  /**
   * Has a CSR signed. Rejects with `ERR_SDSD_CA` when the CA refuses or cannot be reached, and with the signal's reason
   * when the signal fires first. The answer is not verified here.
   */
  sign(request: SigningRequest, signal: AbortSignal): Promise<SignedChain>;
  /** The roots that the CA now stands for, if it can be asked without signing; otherwise undefined. */
  roots(signal: AbortSignal): Promise<readonly Certificate[] | undefined>;
  close(): void;
}

export interface SigningRequest {
  /** PKCS#10, DER. */
  readonly csr: Buffer;
  /** The URI SANs that are asked for, for CAs that do not take them from the CSR. */
  readonly sans: readonly string[];
  /** Lifetime asked for, in milliseconds. */
  readonly ttl: number;
}

export interface SignedChain {
  /** Leaf first, then intermediates, without the root. */
  readonly chain: readonly Certificate[];
  /** Every root that the CA now stands for. */
  readonly roots: readonly Certificate[];
}
