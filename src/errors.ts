/**
 * Every error that sdsd reports on purpose, by its stable code: what it means, and what a person does about it. The table in
 * `docs/errors.md` is made from this.
 */
export const errorCodes = {
  ERR_SDSD_CONFIG: {
    meaning: 'The configuration holds a value that cannot be used.',
    cure: 'Correct the setting that the message names; `sdsd run --help` lists what is allowed.',
  },
  ERR_SDSD_USAGE: {
    meaning: 'The command line could not be understood.',
    cure: 'See the `--help` of the command.',
  },
  ERR_SDSD_SPIFFE_ID: {
    meaning: 'A SPIFFE ID is malformed.',
    cure: 'Write it as `spiffe://trust-domain/path`, the trust domain in lower case.',
  },
  ERR_SDSD_RESOURCE_NAME: {
    meaning: 'A resource name is malformed or not known.',
    cure: '`sdsd status` lists the names that are served; `--identity` adds one.',
  },
  ERR_SDSD_PEM: {
    meaning: 'PEM data holds no usable block, or a broken one.',
    cure: 'Export the certificate or key again; the message says which block is broken.',
  },
  ERR_SDSD_KEY: {
    meaning: 'A private key cannot be read, or is of a kind that cannot be used.',
    cure: 'Use an unencrypted ECDSA P-256 or P-384 key, or RSA from 2048 bits.',
  },
  ERR_SDSD_CERTIFICATE: {
    meaning: 'A certificate cannot be read or made.',
    cure: 'Look at it with `openssl x509 -text`.',
  },
  ERR_SDSD_CSR: {
    meaning: 'A certificate signing request cannot be read, or its signature is wrong.',
    cure: 'Make a new one, with exactly the SPIFFE ID that is asked for.',
  },
  ERR_SDSD_CHAIN: {
    meaning: 'A certificate chain does not fit its key, its identity, its roots or the present time.',
    cure: 'The message names the certificate and the fault. The current secret is kept meanwhile.',
  },
  ERR_SDSD_CA: {
    meaning: 'The CA did not sign.',
    cure: 'The message says why. Renewal is tried again by itself; `sdsd status` shows when.',
  },
  ERR_SDSD_CA_FILES: {
    meaning: "The local CA's own certificate or key cannot be used.",
    cure: 'Restore the file that the message names. It is never replaced by itself: clients trust it.',
  },
  ERR_SDSD_STATE: {
    meaning: 'The state directory cannot be used.',
    cure: "Use an empty directory of the daemon's own user, with mode 0700, or choose another with `--state-dir`.",
  },
  ERR_SDSD_STATE_LOCKED: {
    meaning: 'Another sdsd uses the same state directory.',
    cure: 'Stop it, or give each its own `--state-dir`.',
  },
  ERR_SDSD_SOCKET: {
    meaning: 'A Unix socket cannot be created or reached.',
    cure: 'The message says why. The path may have at most 107 bytes; its mode and group say who may use it.',
  },
  ERR_SDSD_SOCKET_IN_USE: {
    meaning: 'Another process listens on the socket.',
    cure: 'Stop it, or choose another path; the message names the option, and how to find the process.',
  },
  ERR_SDSD_SDS: {
    meaning: 'An SDS server gave no usable answer.',
    cure: 'The message holds what it said; `sdsd status` shows what sdsd serves.',
  },
  ERR_SDSD_TIMEOUT: {
    meaning: 'Something did not happen in time.',
    cure: 'See whether the other side runs; `sdsd get --fetch` tells the reason at once.',
  },
  ERR_SDSD_CONTROL: {
    meaning: 'The daemon refused a command, or does not run.',
    cure: 'Start it with `sdsd run`, in the same folder or with the same `--control-socket`.',
  },
  ERR_SDSD_OUTPUT: {
    meaning: 'A file, or what a command prints, could not be written.',
    cure: 'Make room, or let the user write there; no file was left half written.',
  },
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
  if (typeof error === 'object' && error !== null && 'message' in error) return String(error.message);
  return String(error);
}

/** The errno code ('ENOENT', …) of a system error, or undefined. */
export function errnoOf(error: unknown): string | undefined {
  // Not by its class: an error from another realm, as test runners make them, has another one.
  if (typeof error !== 'object' || error === null || !('code' in error)) return undefined;
  return typeof error.code === 'string' ? error.code : undefined;
}
