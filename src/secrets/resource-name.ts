/** Which resource names there are. A name that is not in this grammar is never answered with a certificate. */

export const WORKLOAD_NAME = 'default';
export const ROOTS_NAME = 'ROOTCA';

const MAX_NAME_BYTES = 2_048;

export type ResourceName =
  | { readonly kind: 'roots' }
  | { readonly kind: 'workload'; readonly identity: string }
  | { readonly kind: 'unknown'; readonly why: string };

/** @param identities the SPIFFE ID of each name that stands for a workload certificate. */
export function parseResourceName(name: string, identities: ReadonlyMap<string, string>): ResourceName {
  if (name === ROOTS_NAME) return { kind: 'roots' };
  const identity = identities.get(name);
  if (identity !== undefined) return { kind: 'workload', identity };
  if (name === '') return { kind: 'unknown', why: 'the name is empty' };
  if (Buffer.byteLength(name) > MAX_NAME_BYTES) {
    return { kind: 'unknown', why: `the name is longer than ${MAX_NAME_BYTES} bytes` };
  }
  return {
    kind: 'unknown',
    why: `it is none of ${WORKLOAD_NAME}, ${ROOTS_NAME} and the names given with --identity`,
  };
}
