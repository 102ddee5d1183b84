/**
 * Every error that sdsd reports on purpose, by its stable code. The text says what the code means; `docs/errors.md` lists
 * the same codes with their cure.
 */
export const errorCodes = {
  ERR_SDSD_CONFIG: 'The configuration holds a value that cannot be used.',
  ERR_SDSD_USAGE: 'The command line could not be understood.',
  ERR_SDSD_SPIFFE_ID: 'A SPIFFE ID is malformed.',
  ERR_SDSD_RESOURCE_NAME: 'A resource name is malformed or not known.',
  ERR_SDSD_PEM: 'PEM data holds no usable block, or a broken one.',
  ERR_SDSD_KEY: 'A private key cannot be read, or is of a kind that cannot be used.',
  ERR_SDSD_CERTIFICATE: 'A certificate cannot be read.',
  ERR_SDSD_CSR: 'A certificate signing request cannot be read, or its signature is wrong.',
  ERR_SDSD_CHAIN: 'A certificate chain does not fit its key, its identity, its roots or the present time.',
  ERR_SDSD_CA: 'The CA did not sign.',
  ERR_SDSD_CA_FILES: "The local CA's own certificate or key cannot be used.",
  ERR_SDSD_STATE: 'The state directory cannot be used.',
  ERR_SDSD_STATE_LOCKED: 'Another sdsd uses the same state directory.',
  ERR_SDSD_SOCKET: 'A Unix socket cannot be created or reached.',
  ERR_SDSD_SOCKET_IN_USE: 'Another server answers on the socket.',
  ERR_SDSD_SDS: 'An SDS server gave no usable answer.',
  ERR_SDSD_TIMEOUT: 'Something did not happen in time.',
  ERR_SDSD_CONTROL: 'The daemon refused a command, or does not run.',
  ERR_SDSD_OUTPUT: 'A file could not be written.',
} as const;

export type ErrorCode = keyof typeof errorCodes;

/**
 * An error with a stable code. `message` says what was tried, on what, and why it failed; `hint` says what to do next.
 * Neither ever holds key bytes.
 */
export class SdsdError extends Error {
  readonly code: ErrorCode;
  readonly hint: string | undefined;

  constructor(code: ErrorCode, message: string, options: { hint?: string; cause?: unknown } = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = 'SdsdError';
    this.code = code;
    this.hint = options.hint;
  }
}

/** The message of anything that was thrown. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** The errno code ('ENOENT', …) of a system error, or undefined. */
export function errnoOf(error: unknown): string | undefined {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : undefined;
}
