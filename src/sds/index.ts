export { CONTROL_PLANE_IDENTIFIER } from './encoding.js';
export { type NameStatus, SdsServer, type SdsServerOptions, type StreamStatus } from './sds-server.js';
export type { SecretManager } from './secret-manager.js';
