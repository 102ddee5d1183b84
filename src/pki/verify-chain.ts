import { createPublicKey, type KeyObject } from 'node:crypto';
import { messageOf, SdsdError } from '../errors.js';
import type { Certificate } from './certificate.js';
import { unusableKey } from './keys.js';
import { nameConstraintFault } from './name-constraints.js';
import { Oid } from './oids.js';
import { isSafeSignatureAlgorithm } from './signature.js';
import { parseSpiffeId } from './spiffe-id.js';
import { readX509Fields, type X509Fields } from './x509-fields.js';

export interface IssuedCertificate {
  /** Leaf first, then each certificate's issuer; the root may stand at the end. */
  readonly chain: readonly Certificate[];
  readonly roots: readonly Certificate[];
  /** The public half of the key that was asked for (a private key stands for its public half). */
  readonly publicKey: KeyObject;
  /** The SPIFFE ID that was asked for; undefined when any will do. */
  readonly identity: string | undefined;
  /** Milliseconds since the epoch. */
  readonly now: number;
}

/**
 * Returns when a workload may use what a CA has issued: the leaf is for this key and this identity alone, may serve and
 * call over TLS, and its chain leads, in order and within every validity, to one of the roots (RFC 5280 section 6, SPIFFE
 * X509-SVID section 5). Otherwise throws `ERR_SDSD_CHAIN` with the first reason. Never laxer than OpenSSL or BoringSSL.
 */
export function verifyIssued({ chain, roots, publicKey, identity, now }: IssuedCertificate): void {
  const [leaf] = chain;
  if (leaf === undefined) throw refused('the chain is empty', 'have the CA answer with the leaf first');
  verifyLeafKey(leaf, chain, publicKey.type === 'private' ? createPublicKey(publicKey) : publicKey);
  verifyLeafProfile(fieldsOf(leaf));
  verifyIdentity(leaf, identity);
  verifyPath({ chain, roots, now });
}

/**
 * Returns when a chain leads, in order and within every validity, to one of the roots, whatever its first certificate is
 * for; otherwise throws `ERR_SDSD_CHAIN` with the first reason. RFC 5280 section 6.1.
 */
export function verifyPath({ chain, roots, now }: Pick<IssuedCertificate, 'chain' | 'roots' | 'now'>): void {
  if (roots.length === 0) throw refused('there is no root to verify it with', 'configure the root of the CA');
  for (const [index, certificate] of chain.entries()) {
    verifyUsable(certificate, nameIn(chain, index), now);
    const issuer = chain[index + 1];
    if (issuer === undefined) continue;
    verifyOrder(chain, index, issuer);
    const fault = issuerFault(issuer, chain.slice(0, index + 1));
    if (fault !== undefined) throw refused(`${nameIn(chain, index)} ${fault}`, 'have the CA send each issuer next');
  }
  verifyAnchor(chain, roots, now);
}

/** When something verifies, in milliseconds since the epoch. */
export interface Validity {
  readonly notBefore: number;
  readonly notAfter: number;
  /** The first end of all that stands above the leaf: what the CA has left. */
  readonly issuersNotAfter: number;
}

/**
 * When a chain that {@link verifyPath} accepts at `now` verifies: all of its certificates and the root that it leads to are
 * valid then. Of several such roots the one that lasts longest counts. Throws `ERR_SDSD_CHAIN` for an empty chain.
 */
export function pathValidity({ chain, roots, now }: Pick<IssuedCertificate, 'chain' | 'roots' | 'now'>): Validity {
  const last = chain.at(-1);
  if (last === undefined) throw refused('the chain is empty', 'have the CA answer with the leaf first');
  const anchors = roots.filter((root) => isAmong(chain, root) || anchorFault(root, chain, now) === undefined);
  const [anchor] = anchors.toSorted((a, b) => b.notAfter - a.notAfter);
  const path = anchor ? [...chain, anchor] : chain;
  return {
    notBefore: Math.max(...path.map(({ notBefore }) => notBefore)),
    notAfter: Math.min(...path.map(({ notAfter }) => notAfter)),
    issuersNotAfter: Math.min(...path.slice(1).map(({ notAfter }) => notAfter)),
  };
}

function verifyLeafKey(leaf: Certificate, chain: readonly Certificate[], publicKey: KeyObject): void {
  if (hasKey(leaf, publicKey)) return;
  const position = chain.findIndex((certificate) => hasKey(certificate, publicKey));
  if (position > 0) {
    const order = `it is in the wrong order: the leaf is certificate ${position + 1} of ${chain.length}`;
    throw refused(order, 'put the leaf first, then each issuer after what it issued');
  }
  throw refused('the leaf is for another key', 'use the certificate that was issued for this key');
}

function hasKey({ x509 }: Certificate, publicKey: KeyObject): boolean {
  try {
    return x509.publicKey.equals(publicKey);
  } catch {
    return false; // A key that OpenSSL cannot decode is not ours.
  }
}

/** SPIFFE X509-SVID sections 4.1 to 4.4; Envoy and OpenSSL ask the same of the extended key usage. */
function verifyLeafProfile({ isCa, keyUsage, extendedKeyUsage }: X509Fields): void {
  const hint = 'have the CA issue a certificate for TLS servers and clients';
  if (isCa) throw refused('the leaf is a CA certificate', hint);
  if (keyUsage?.has('keyCertSign') || keyUsage?.has('cRLSign')) {
    throw refused('the leaf may sign certificates or CRLs, as only a CA may', hint);
  }
  if (keyUsage?.has('digitalSignature') === false) {
    throw refused('the key usage of the leaf does not allow digital signatures', hint);
  }
  const purpose = missingPurpose(extendedKeyUsage);
  if (purpose !== undefined) throw refused(`the extended key usage of the leaf does not allow ${purpose}`, hint);
}

/** `anyExtendedKeyUsage` does not count, for it does not count with OpenSSL and BoringSSL. */
function missingPurpose(usages: readonly string[] | undefined): string | undefined {
  if (usages === undefined) return undefined;
  if (!usages.includes(Oid.serverAuth)) return 'TLS servers';
  return usages.includes(Oid.clientAuth) ? undefined : 'TLS clients';
}

/** SPIFFE X509-SVID section 2: exactly one URI SAN, and it is the SPIFFE ID. */
function verifyIdentity({ uriSans }: Certificate, identity: string | undefined): void {
  const [san, another] = uriSans;
  const hint = 'have the CA put the SPIFFE ID into the leaf as its only URI SAN';
  if (san === undefined) throw refused('the leaf has no URI SAN', hint);
  if (another !== undefined) throw refused(`the leaf has ${uriSans.length} URI SANs, not one`, hint);
  if (identity !== undefined && san !== identity) {
    throw refused(`the leaf is for ${JSON.stringify(san)}, but ${JSON.stringify(identity)} was asked for`, hint);
  }
  try {
    parseSpiffeId(san);
  } catch (cause) {
    throw refused(`the URI SAN of the leaf is no SPIFFE ID: ${messageOf(cause)}`, hint);
  }
}

/** What one certificate must be, wherever it stands. */
function verifyUsable(certificate: Certificate, name: string, now: number): void {
  const fault = validityFault(certificate, now) ?? keyFault(certificate);
  if (fault !== undefined) throw refused(`${name} ${fault.what}`, fault.hint);
  const { signatureAlgorithm, unknownCritical } = fieldsOf(certificate);
  const [extension] = unknownCritical;
  if (extension !== undefined) {
    throw refused(`${name} has ${extensionText(extension)}, which is not understood`, 'use a CA without it');
  }
  // Nobody relies on a self-signature, so roots that are signed with SHA-1 are still in use.
  if (!certificate.selfSigned && !isSafeSignatureAlgorithm(signatureAlgorithm)) {
    throw refused(`${name} is signed with ${signatureAlgorithm}, which is not safe`, 'have the CA sign with SHA-256');
  }
}

function extensionText(id: string): string {
  return id === Oid.policyConstraints ? `policy constraints (${id}, critical)` : `the critical extension ${id}`;
}

interface Fault {
  readonly what: string;
  readonly hint: string;
}

/** The last second counts as over, as with OpenSSL. */
function validityFault({ notBefore, notAfter }: Certificate, now: number): Fault | undefined {
  if (now >= notAfter) {
    const what = `expired ${span(now - notAfter)} ago, at ${isoTime(notAfter)}`;
    return { what, hint: 'renew it, or set the clock of this host right' };
  }
  if (now < notBefore) {
    const what = `is not valid for another ${span(notBefore - now)}, until ${isoTime(notBefore)}`;
    return { what, hint: 'set the clock of this host, or of the CA, right' };
  }
  return undefined;
}

function keyFault({ isCa, x509 }: Certificate): Fault | undefined {
  try {
    const key = x509.publicKey;
    if (isCa && key.asymmetricKeyType === 'ed25519') return undefined; // It never takes part in a handshake.
    const fault = unusableKey(key);
    if (fault === undefined) return undefined;
    return { what: `has a key that cannot be used: ${fault}`, hint: 'use ECDSA P-256, or RSA with 2048 bits' };
  } catch {
    return { what: 'has a key that cannot be read', hint: 'use ECDSA P-256, or RSA with 2048 bits' };
  }
}

function verifyOrder(chain: readonly Certificate[], index: number, next: Certificate): void {
  const certificate = chain[index];
  if (certificate === undefined || certificate.x509.checkIssued(next.x509)) return;
  const position = chain.findIndex((other, at) => at !== index && certificate.x509.checkIssued(other.x509));
  if (position === -1) return;
  const issuer = `certificate ${position + 1} issued certificate ${index + 1}, and should follow it`;
  throw refused(`it is in the wrong order: ${issuer}`, 'put the leaf first, then each issuer after what it issued');
}

/** Why `issuer` cannot have issued the last certificate of `path`, which is leaf first, as the end of a sentence. */
function issuerFault(issuer: Certificate, path: readonly Certificate[]): string | undefined {
  const issued = path.at(-1);
  if (issued === undefined) return undefined;
  const by = `is not issued by ${subjectOf(issuer)}`;
  const fields = fieldsOf(issuer);
  if (!issuer.isCa) return `${by}: that is no CA certificate`;
  if (fields.keyUsage?.has('keyCertSign') === false) return `${by}: the key usage of that does not allow it to sign`;
  if (!issued.x509.checkIssued(issuer.x509)) {
    const other = oneLine(issued.x509.issuer);
    return other === subjectOf(issuer) ? `${by}: that has another key` : `${by}, but by ${other}`;
  }
  if (!verifies(issued, issuer)) return `${by}: the signature is wrong`;
  return constraintFault(issuer, fields, path);
}

function verifies(issued: Certificate, issuer: Certificate): boolean {
  try {
    return issued.x509.verify(issuer.x509.publicKey);
  } catch {
    return false;
  }
}

/** What an issuer allows of everything below it. */
function constraintFault(issuer: Certificate, fields: X509Fields, path: readonly Certificate[]): string | undefined {
  const by = `must not stand below ${subjectOf(issuer)}`;
  const below = path.map(fieldsOf);
  const authorities = below.filter((certificate) => certificate.isCa && !isSelfIssued(certificate)).length;
  if (fields.pathLength !== undefined && authorities > fields.pathLength) {
    return `${by}: the path length of that is ${fields.pathLength}, but ${authorities} CA certificates follow`;
  }
  const purpose = missingPurpose(fields.extendedKeyUsage);
  if (purpose !== undefined) return `${by}: the extended key usage of that does not allow ${purpose}`;
  if (fields.nameConstraints === undefined) return undefined;
  for (const certificate of below) {
    if (certificate.isCa && isSelfIssued(certificate)) continue;
    const fault = nameConstraintFault(fields.nameConstraints, certificate);
    if (fault !== undefined) return `${by}: ${fault}`;
  }
  return undefined;
}

function isSelfIssued({ issuer, subject }: X509Fields): boolean {
  return issuer.equals(subject);
}

/** A root need not be self-signed: Envoy ends a path at whatever its `trusted_ca` holds. */
function verifyAnchor(chain: readonly Certificate[], roots: readonly Certificate[], now: number): void {
  const last = chain.at(-1);
  if (last === undefined || chain.some((certificate) => certificate.isCa && isAmong(roots, certificate))) return;
  const name = nameIn(chain, chain.length - 1);
  const { issuer } = fieldsOf(last);
  const candidates = roots.filter((root) => last.x509.checkIssued(root.x509) || fieldsOf(root).subject.equals(issuer));
  const faults = candidates.map((root) => anchorFault(root, chain, now));
  if (faults.includes(undefined)) return;
  const known = roots.map(subjectOf).join('; ');
  const fault = faults[0] ?? `is issued by ${oneLine(last.x509.issuer)}, which is none of the roots (${known})`;
  throw refused(`${name} ${fault}`, 'give the root of the CA that issued it, and every intermediate in the chain');
}

function isAmong(roots: readonly Certificate[], { fingerprint }: Certificate): boolean {
  return roots.some((root) => root.fingerprint === fingerprint);
}

function anchorFault(root: Certificate, chain: readonly Certificate[], now: number): string | undefined {
  const validity = validityFault(root, now) ?? keyFault(root);
  if (validity !== undefined) return `leads to the root ${subjectOf(root)}, which ${validity.what}`;
  const [extension] = fieldsOf(root).unknownCritical;
  if (extension !== undefined) return `leads to a root with ${extensionText(extension)}, which is not understood`;
  return issuerFault(root, chain);
}

function fieldsOf(certificate: Certificate): X509Fields {
  try {
    return readX509Fields(certificate.der);
  } catch (cause) {
    throw refused(`a certificate cannot be read: ${messageOf(cause)}`, 'have the CA issue it again');
  }
}

function nameIn(chain: readonly Certificate[], index: number): string {
  const certificate = chain[index];
  if (certificate === undefined || index === 0) return certificate?.isCa ? subjectOf(certificate) : 'the leaf';
  return `certificate ${index + 1} of ${chain.length} (${subjectOf(certificate)})`;
}

function subjectOf({ x509 }: Certificate): string {
  return oneLine(x509.subject);
}

/** Node gives a name as lines, and none at all for an empty one. */
function oneLine(name: string | undefined): string {
  return name === undefined || name === '' ? 'an empty name' : name.split('\n').join(', ');
}

function isoTime(ms: number): string {
  return new Date(ms).toISOString();
}

function span(ms: number): string {
  const seconds = Math.ceil(ms / 1000);
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172_800) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86_400)} days`;
}

function refused(fault: string, hint: string): SdsdError {
  return new SdsdError('ERR_SDSD_CHAIN', `the certificate chain cannot be used: ${fault}`, { hint });
}
