/**
 * What the control socket asks of the daemon. It goes out as JSON: times are ISO 8601 strings in whole seconds, and versions
 * strings of digits, as in SDS itself.
 */
export interface DaemonControl {
  status(): DaemonStatus;
  /**
   * Has new certificates signed now: for one resource name, or for all that have a certificate.
   * Throws ERR_SDSD_RESOURCE_NAME for a name that holds no certificate, ERR_SDSD_CA when the CA does not sign.
   */
  rotate(name?: string): Promise<RotateResult>;
  /** Replaces the root of the local CA in the safe order. Resolves when the new root is known, not when the old is gone. */
  rotateRoot(): Promise<RotateRootResult>;
  /**
   * Signs the key of somebody else. Throws ERR_SDSD_SPIFFE_ID, also for an identity that no workload may have or that is of a
   * trust domain that was not asked for, ERR_SDSD_CSR or ERR_SDSD_CA.
   */
  issue(request: IssueRequest): Promise<IssueResult>;
  roots(): Promise<RootsResult>;
}

export interface DaemonStatus {
  readonly version: string;
  readonly pid: number;
  readonly startedAt: string;
  readonly socket: string;
  readonly stateDir: string;
  readonly ca: CaStatus;
  /** Certificates by name, `default` first; then the trust anchors. */
  readonly secrets: readonly SecretStatus[];
  readonly roots: readonly RootStatus[];
  readonly subscribers: readonly SubscriberStatus[];
  /** Names that were asked for and are not understood, with how often. */
  readonly unknownNames: readonly UnknownName[];
}

export interface CaStatus {
  /** For a person: "local CA in /var/lib/sdsd". */
  readonly description: string;
  /** `failing` from the first failed signing until the next that succeeds. */
  readonly state: 'ready' | 'failing';
  readonly lastError: string | null;
  /** The first end of a certificate of the CA, its root included; null before it has signed. */
  readonly notAfter: string | null;
}

/** A root that clients are given. */
export interface RootStatus {
  /** SHA-256, hexadecimal. */
  readonly fingerprint: string;
  readonly subject: string;
  readonly notAfter: string;
  /** The CA stands for it now; otherwise it stays until certificates under it have ended. */
  readonly current: boolean;
  readonly neededUntil: string | null;
}

/** The life of a name: nothing yet and being made; served; nothing to serve, and why stands in `lastError`. */
export type SecretState = 'initializing' | 'available' | 'unavailable';

export interface SecretStatus {
  readonly name: string;
  readonly kind: 'tls-certificate' | 'validation-context';
  readonly state: SecretState;
  /** The SPIFFE ID; null for roots. */
  readonly identity: string | null;
  /** Hexadecimal; null for roots. */
  readonly serialNumber: string | null;
  readonly notBefore: string | null;
  readonly notAfter: string | null;
  /** When the next renewal is due. */
  readonly renewAt: string | null;
  readonly version: string | null;
  /** For a person: "local CA". */
  readonly source: string | null;
  /** How many streams subscribe to the name. */
  readonly subscribers: number;
  readonly lastError: string | null;
  /** Failed attempts since the last that succeeded. */
  readonly failures: number;
}

export interface SubscriberStatus {
  readonly connectionId: string;
  /** What Envoy calls itself. */
  readonly nodeId: string;
  readonly variant: 'sotw' | 'delta';
  readonly names: readonly SubscribedName[];
}

export interface SubscribedName {
  readonly name: string;
  readonly sentVersion: string | null;
  readonly ackedVersion: string | null;
  /** Why the client refused the last answer; null after its next ACK. */
  readonly lastNack: string | null;
}

export interface UnknownName {
  readonly name: string;
  readonly count: number;
}

export interface RotateResult {
  readonly rotated: readonly RotatedSecret[];
}

export interface RotatedSecret {
  readonly name: string;
  /** Hexadecimal. */
  readonly serialNumber: string;
  readonly notAfter: string;
}

export interface RotateRootResult {
  /** SHA-256 of the new root, hexadecimal. */
  readonly fingerprint: string;
  readonly notAfter: string;
}

export interface IssueRequest {
  /** The SPIFFE ID to certify. */
  readonly identity: string;
  /** PKCS#10, PEM. The key stays with whoever asks. */
  readonly csrPem: string;
  /** Lifetime in milliseconds; undefined: the daemon's own default. */
  readonly ttlMs?: number;
  /** Sign an identity of another trust domain than the daemon's own. Default: false. */
  readonly foreignTrustDomain?: boolean;
  /** Who asks, for the log: the user and the process. */
  readonly requester?: string;
}

export interface IssueResult {
  /** PEM, leaf first, without the root. */
  readonly chainPem: string;
  /** PEM of every root. */
  readonly rootsPem: string;
  /** The lifetime that was asked for, in milliseconds: the CA may have granted less. */
  readonly askedTtlMs: number;
}

export interface RootsResult {
  /** PEM of every root. */
  readonly pem: string;
}

/** The body of every answer that is not a success. */
export interface ControlErrorBody {
  readonly error: { readonly code: string; readonly message: string; readonly hint?: string };
}
