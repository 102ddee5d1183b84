import { messageOf, SdsdError } from '../errors.js';
import { issueCertificate, parseCertificate, parseCsr, parseSpiffeId, randomSerialNumber } from '../pki/index.js';
import type { SignedChain, SigningRequest } from '../secrets/ca-client.js';
import type { Authority } from './authority.js';

export interface LeafPolicy {
  /** Milliseconds, as for the two that follow; `now` since the epoch. */
  readonly now: number;
  /** How far before now a leaf begins to be valid, for hosts whose clocks are behind. */
  readonly backdate: number;
  /** The longest lifetime that is granted; undefined without a limit of its own. */
  readonly maxTtl: number | undefined;
  readonly random: (size: number) => Buffer;
}

/**
 * Signs a leaf for the key of a CSR, with an empty subject and the URI SANs that the CSR and the request agree on: valid
 * SPIFFE IDs, of any trust domain. Its lifetime is rounded up to a whole second and ends with the authority's own.
 * Throws `ERR_SDSD_CA` with the reason of a refusal.
 */
export function issueLeaf(authority: Authority, request: SigningRequest, policy: LeafPolicy): SignedChain {
  const { now, backdate } = policy;
  verifyTtl(request.ttl, policy.maxTtl);
  verifyAuthority(authority, now);
  const publicKey = verifyRequest(request);
  const der = issueCertificate(
    {
      subject: {},
      subjectPublicKeyInfo: publicKey,
      serialNumber: randomSerialNumber(policy.random),
      notBefore: Math.max(wholeSecond(now - backdate), authority.notBefore),
      notAfter: Math.min(wholeSecond(now + request.ttl + 999), authority.notAfter),
      uriSans: request.sans,
      profile: { kind: 'leaf' },
    },
    authority.issuer,
  );
  return { chain: [parseCertificate(der), ...authority.intermediates], roots: authority.roots };
}

function verifyTtl(ttl: number, maxTtl: number | undefined): void {
  if (!(ttl >= 1000 && ttl < Number.POSITIVE_INFINITY)) {
    throw refused(`a lifetime of ${ttl} ms was asked for`, 'ask for at least one second');
  }
  if (maxTtl !== undefined && ttl > maxTtl) {
    const text = `a lifetime of ${ttl} ms was asked for, and at most ${maxTtl} ms are granted`;
    throw refused(text, 'ask for less, or raise the longest lifetime that the CA grants');
  }
}

function verifyAuthority({ notBefore, notAfter }: Authority, now: number): void {
  if (now >= notAfter) {
    const hint = 'make a new root with `sdsd rotate-root`, or renew the CA files that are configured';
    throw refused(`its own certificate expired at ${new Date(notAfter).toISOString()}`, hint);
  }
  if (now < notBefore) {
    const text = `its own certificate is not valid before ${new Date(notBefore).toISOString()}`;
    throw refused(text, 'set the clock of this host right');
  }
}

/** The SubjectPublicKeyInfo of a request that is in order. */
function verifyRequest({ csr, sans }: SigningRequest): Buffer {
  try {
    const { subjectPublicKeyInfo, uriSans } = parseCsr(csr);
    if (sans.length === 0) throw new Error('no identity was asked for');
    for (const san of sans) parseSpiffeId(san);
    if (uriSans.length !== sans.length || uriSans.some((san, index) => san !== sans[index])) {
      throw new Error(`the CSR asks for ${list(uriSans)}, but the request for ${list(sans)}`);
    }
    return subjectPublicKeyInfo;
  } catch (cause) {
    throw refused(messageOf(cause), 'send a CSR whose URI SANs are exactly the SPIFFE IDs that are asked for', cause);
  }
}

function list(sans: readonly string[]): string {
  return sans.length === 0 ? 'no URI SAN' : sans.map((san) => JSON.stringify(san)).join(', ');
}

function wholeSecond(ms: number): number {
  return Math.floor(ms / 1000) * 1000;
}

function refused(fault: string, hint: string, cause?: unknown): SdsdError {
  return new SdsdError('ERR_SDSD_CA', `the local CA did not sign: ${fault}`, { hint, cause });
}
