/** sdsd as a library. */
export type { DaemonCa } from './admin/control-handlers.js';
export type {
  CaStatus,
  DaemonControl,
  DaemonStatus,
  IssueRequest,
  IssueResult,
  RootStatus,
  RootsResult,
  RotatedSecret,
  RotateResult,
  RotateRootResult,
  SecretState,
  SecretStatus,
  SubscribedName,
  SubscriberStatus,
  UnknownName,
} from './admin/daemon-control.js';
export { type CaFiles, type LocalCa, type LocalCaOptions, openLocalCa } from './ca/index.js';
export { type Clock, systemClock, type Timer } from './clock.js';
export { type Config, type ConfigSources, type FlagValues, loadConfig } from './config/index.js';
export { createDaemon, type Daemon, type DaemonOptions } from './daemon.js';
export { type ErrorCode, errorCodes, SdsdError } from './errors.js';
export { createLogger, type LogFields, type Logger, type LoggerOptions, type LogLevel, silentLogger } from './log.js';
export { type Certificate, type KeyAlgorithm, parseCertificate, parseCertificates } from './pki/index.js';
export {
  type Anchor,
  type CaClient,
  CachingSecretManager,
  type CaIdentitySourceOptions,
  type Caller,
  caIdentitySource,
  type IdentitySource,
  type IdentityStore,
  type IssuedIdentity,
  type Secret,
  type SecretManagerOptions,
  type SecretRef,
  type SecretResult,
  type SignedChain,
  type SigningRequest,
  type StoredBundle,
  type StoredIdentity,
  type Subscription,
  type TlsCertificateSecret,
  type TrustBundleStore,
  trustBundleFile,
  type ValidationContextSecret,
  type WorkloadStatus,
} from './secrets/index.js';
