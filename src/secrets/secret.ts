/**
 * What a resource name stands for. A secret is frozen when it is made: a changed certificate is a new secret with a
 * higher version.
 */
export type Secret = TlsCertificateSecret | ValidationContextSecret;

interface SecretBase {
  /** The resource name that Envoy asks for. */
  readonly name: string;
  /** Grows with every new secret of this process and over restarts; unique among all names. */
  readonly version: number;
  /** Where it came from, for a person: "local CA", "/etc/certs". */
  readonly source: string;
  /**
   * The secret that a client must hold before it can use this one: a certificate under a new root needs the bundle that
   * verifies it.
   */
  readonly requires?: SecretRef;
}

export interface SecretRef {
  readonly name: string;
  readonly version: number;
}

/** A workload certificate and its key. */
export interface TlsCertificateSecret extends SecretBase {
  readonly kind: 'tls-certificate';
  /** The SPIFFE ID in the leaf. */
  readonly identity: string;
  /** PEM, leaf first, without the root. */
  readonly certificateChain: Buffer;
  /** PEM. Never logged, never shown. */
  readonly privateKey: Buffer;
  /** Serial number of the leaf, hexadecimal. */
  readonly serialNumber: string;
  /** When the leaf, its chain and the root above it are all valid, in milliseconds since the epoch. */
  readonly notBefore: number;
  readonly notAfter: number;
  /** The first end of what stands above the leaf, the root included. */
  readonly issuersNotAfter: number;
}

/** Trust anchors. */
export interface ValidationContextSecret extends SecretBase {
  readonly kind: 'validation-context';
  /** PEM of every root, never empty. */
  readonly trustedCa: Buffer;
  /** SHA-256 fingerprints of the roots, hexadecimal, in the order of `trustedCa`. */
  readonly fingerprints: readonly string[];
  /** The first end of any root, milliseconds since the epoch. */
  readonly notAfter: number;
}

/** What a name is answered with. */
export type SecretResult =
  /**
   * This is it. `before`: the one before it, if it may still be used: for a client that must not get the new one yet, because
   * of what that requires.
   */
  | { readonly kind: 'secret'; readonly secret: Secret; readonly before?: Secret }
  /** The name is understood, and there is nothing to send yet; whoever subscribed hears of it as soon as there is. */
  | { readonly kind: 'pending'; readonly why: string }
  /** The name is not understood (`unknown`), or not for this caller (`forbidden`). */
  | { readonly kind: 'denied'; readonly reason: 'unknown' | 'forbidden'; readonly why: string }
  /** The name was served, and its owner has taken it away. */
  | { readonly kind: 'gone' };

/** Who asks: one connection, and the node that Envoy says it is. */
export interface Caller {
  readonly connectionId: string;
  readonly nodeId: string;
}

/** A lease on a name. Closing it ends the calls; closing it twice does nothing. */
export interface Subscription {
  close(): void;
}
