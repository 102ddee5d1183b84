/** sdsd as a library. */
export { type LocalCa, type LocalCaOptions, openLocalCa } from './ca/index.js';
export { type Clock, systemClock, type Timer } from './clock.js';
export { type Config, loadConfig } from './config/index.js';
export { createDaemon, type Daemon, type DaemonOptions } from './daemon.js';
export { type ErrorCode, errorCodes, SdsdError } from './errors.js';
export { createLogger, type Logger, silentLogger } from './log.js';
export {
  type CaClient,
  CachingSecretManager,
  type Caller,
  caIdentitySource,
  type IdentitySource,
  type Secret,
  type SecretManagerOptions,
  type SecretResult,
  type SignedChain,
  type SigningRequest,
  type Subscription,
  type TlsCertificateSecret,
  type ValidationContextSecret,
} from './secrets/index.js';
