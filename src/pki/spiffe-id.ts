import { SdsdError } from '../errors.js';

/** A SPIFFE ID in its parts. */
export interface SpiffeId {
  readonly trustDomain: string;
  /** Empty, or from the first slash on. */
  readonly path: string;
  /** The whole ID. */
  readonly text: string;
}

/**
 * Takes a SPIFFE ID apart, by the SPIFFE ID specification, section 2: the scheme `spiffe`, a trust domain of at most 255
 * lower-case letters, digits, dots, dashes and underscores, and a path of non-empty segments that are not `.` or `..`;
 * at most 2048 bytes. Throws `ERR_SDSD_SPIFFE_ID`.
 */
export function parseSpiffeId(text: string): SpiffeId {
  const fault = (what: string, hint: string): SdsdError => malformed(text, what, hint);
  if (!text.startsWith(SCHEME)) throw fault(`it does not begin with ${SCHEME}`, `write ${SCHEME}<trust domain>/<path>`);
  if (Buffer.byteLength(text) > 2048) throw fault('it is longer than 2048 bytes', 'shorten its path');
  const slash = text.indexOf('/', SCHEME.length);
  const trustDomain = slash === -1 ? text.slice(SCHEME.length) : text.slice(SCHEME.length, slash);
  const path = slash === -1 ? '' : text.slice(slash);
  const domainFault = trustDomainFault(trustDomain);
  if (domainFault !== undefined) throw fault(domainFault.what, domainFault.hint);
  for (const segment of path.split('/').slice(1)) {
    const segmentFault = pathSegmentFault(segment);
    if (segmentFault !== undefined) throw fault(segmentFault.what, segmentFault.hint);
  }
  return { trustDomain, path, text };
}

/** The trust domain, as it is, when it can be one (see {@link parseSpiffeId}). Throws `ERR_SDSD_SPIFFE_ID`. */
export function parseTrustDomain(text: string): string {
  const fault = trustDomainFault(text);
  if (fault !== undefined) throw malformed(`${SCHEME}${text}`, fault.what, fault.hint);
  return text;
}

/**
 * The identity that Istio gives a service account: `spiffe://<trust domain>/ns/<namespace>/sa/<service account>`.
 * Throws `ERR_SDSD_SPIFFE_ID` when a part is empty or holds what it may not, a slash among others.
 */
export function workloadIdentity(trustDomain: string, namespace: string, serviceAccount: string): string {
  const text = `${SCHEME}${trustDomain}/ns/${namespace}/sa/${serviceAccount}`;
  const parts = { 'trust domain': trustDomain, namespace, 'service account': serviceAccount };
  for (const [name, part] of Object.entries(parts)) {
    if (part === '') throw malformed(text, `the ${name} is empty`, `set the ${name}`);
    if (part.includes('/')) throw malformed(text, `the ${name} holds a slash`, `set the ${name} to one plain name`);
  }
  return parseSpiffeId(text).text;
}

const SCHEME = 'spiffe://';

export interface Fault {
  readonly what: string;
  readonly hint: string;
}

/** Why a text cannot be a trust domain, or undefined. A host name has no empty label, so `..` and the like are none. */
export function trustDomainFault(trustDomain: string): Fault | undefined {
  if (trustDomain === '') return { what: 'its trust domain is empty', hint: `write ${SCHEME}<trust domain>/<path>` };
  if (trustDomain.length > 255) {
    return {
      what: `its trust domain is longer than 255 bytes: it has ${trustDomain.length} characters`,
      hint: 'shorten it',
    };
  }
  const character = /[^a-z0-9._-]/u.exec(trustDomain)?.[0];
  if (character === undefined) {
    if (!trustDomain.split('.').includes('')) return undefined;
    return { what: 'its trust domain has a dot at its begin or end, or two in a row', hint: 'write it as a host name' };
  }
  return {
    what: `its trust domain holds ${JSON.stringify(character)}, a character that it cannot have`,
    hint: 'use lower-case letters, digits, dots, dashes and underscores alone: no upper case, user or port',
  };
}

function pathSegmentFault(segment: string): Fault | undefined {
  if (segment === '') {
    return { what: 'its path has an empty segment', hint: 'leave out the doubled slash, or the one at the end' };
  }
  if (segment === '.' || segment === '..') {
    return { what: `its path has the segment "${segment}"`, hint: 'write the path without relative segments' };
  }
  const character = /[^a-zA-Z0-9._-]/u.exec(segment)?.[0];
  if (character === undefined) return undefined;
  return {
    what: `its path holds ${JSON.stringify(character)}`,
    hint: 'use letters, digits, dots, dashes and underscores between the slashes: no escapes, query or fragment',
  };
}

function malformed(text: string, what: string, hint: string): SdsdError {
  const shown = text.length > 200 ? `${text.slice(0, 200)}…` : text;
  return new SdsdError('ERR_SDSD_SPIFFE_ID', `${JSON.stringify(shown)} is not a SPIFFE ID: ${what}`, { hint });
}
