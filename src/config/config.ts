import type { LogLevel } from '../log.js';
import type { KeyAlgorithm, KeyFormat } from '../pki/index.js';

/** Everything that can be configured, checked and complete. Frozen, with all that it holds. Paths are absolute. */
export interface Config {
  /** The directory that relative paths are below, absolute. */
  readonly workingDirectory: string;
  /** The Unix socket that Envoy asks for secrets. */
  readonly socket: string;
  /** Permission bits of `socket`, such as 0o660. */
  readonly socketMode: number;
  /** Where the local CA and what must outlive a restart are kept. */
  readonly stateDir: string;
  /** A file with the key under which certificates are kept over a restart; undefined: they are not kept. */
  readonly stateKeyFile: string | undefined;
  /** The Unix socket for `sdsd status`, `rotate` and the like. */
  readonly controlSocket: string;
  readonly identity: WorkloadIdentityConfig;
  /** Further resource names and the identities that they stand for, in the order in which they were given. */
  readonly identities: readonly NamedIdentity[];
  readonly certificates: CertificateConfig;
  readonly ca: CaConfig;
  readonly keys: KeyConfig;
  /** How many names that nobody subscribes to are kept in memory. */
  readonly maxIdleNames: number;
  /** How long a certificate under a new root waits until every subscriber of ROOTCA has acknowledged that root, in ms. */
  readonly rootAckTimeout: number;
  /** How long one attempt to have a certificate signed may take, in ms. */
  readonly caTimeout: number;
  readonly limits: LimitsConfig;
  readonly logLevel: LogLevel;
}

/** What clients may use up. */
export interface LimitsConfig {
  readonly connections: number;
  /** Over all connections. */
  readonly streams: number;
  readonly namesPerStream: number;
  /** What the daemon remembers for all clients together, in bytes; undefined: half of the heap that Node may use. */
  readonly clientMemory: number | undefined;
}

/** Who the name `default` is: `spiffe://<trustDomain>/ns/<namespace>/sa/<serviceAccount>`. */
export interface WorkloadIdentityConfig {
  readonly trustDomain: string;
  readonly namespace: string;
  readonly serviceAccount: string;
  /** The SPIFFE ID that the three parts make. */
  readonly spiffeId: string;
}

export interface NamedIdentity {
  /** The resource name. */
  readonly name: string;
  /** Its SPIFFE ID. */
  readonly spiffeId: string;
}

export interface CertificateConfig {
  /** Lifetime that is asked for, in ms. */
  readonly ttl: number;
  /** The share of the lifetime before its end at which a certificate is renewed, 0 to 1. */
  readonly gracePeriodRatio: number;
  /** By how much that share varies at random, up and down, 0 to 1. */
  readonly gracePeriodRatioJitter: number;
}

/** Who signs. */
export type CaConfig = LocalCaConfig;

export interface LocalCaConfig {
  readonly provider: 'local';
  /** An own CA certificate and key to sign with; undefined: the CA makes its own and keeps them in the state directory. */
  readonly files: LocalCaFiles | undefined;
  /** Sign with an intermediate below the root, rather than with the root itself. */
  readonly intermediate: boolean;
}

export interface LocalCaFiles {
  /** PEM: the certificate that signs, and those above it without the root, if any. */
  readonly cert: string;
  /** PEM: its key. */
  readonly key: string;
  /** PEM: the roots to hand out; undefined when `cert` is itself a root. */
  readonly root: string | undefined;
}

export interface KeyConfig {
  readonly spec: KeyAlgorithm;
  /** How a key stands in the secret: `PRIVATE KEY` blocks (`pkcs8`), or SEC1 and PKCS#1 (`traditional`). */
  readonly encoding: KeyFormat;
}
