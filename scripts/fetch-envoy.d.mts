export const oldestEnvoy: string;
export const newestEnvoy: string;

/** The path of an Envoy of this version, or the reason why there is none. Never rejects. */
export function envoyBinary(
  version: string,
): Promise<{ path: string; reason?: never } | { path?: never; reason: string }>;
