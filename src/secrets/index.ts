export type { CaClient, SignedChain, SigningRequest } from './ca-client.js';
export { type CaIdentitySourceOptions, caIdentitySource } from './ca-identity-source.js';
export { CachingSecretManager, type SecretManagerOptions, type WorkloadStatus } from './caching-secret-manager.js';
export { encryptedIdentityStore, readStateKey } from './encrypted-identity-store.js';
export type { IdentitySource, IssuedIdentity } from './identity-source.js';
export type { IdentityStore, StoredIdentity } from './identity-store.js';
export { ROOTS_NAME, WORKLOAD_NAME } from './resource-name.js';
export type {
  Caller,
  Secret,
  SecretRef,
  SecretResult,
  Subscription,
  TlsCertificateSecret,
  ValidationContextSecret,
} from './secret.js';
export type { Anchor } from './trust-bundle.js';
export { type StoredBundle, type TrustBundleStore, trustBundleFile } from './trust-bundle-store.js';
