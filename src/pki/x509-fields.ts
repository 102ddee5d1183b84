import { bytesOf, childrenOf, decode, encode, insideOctets, isTagged, isType, type Node, oidOf } from './asn1.js';
import { Oid } from './oids.js';
import { type GeneralName, generalNames } from './subject-alt-name.js';

/** Those fields of a certificate (RFC 5280 section 4.1) that `X509Certificate` hides or only gives as text. */
export interface X509Fields {
  /** Hexadecimal, upper case, without leading zero octets. */
  readonly serialNumber: string;
  /** The OID. */
  readonly signatureAlgorithm: string;
  /** DER. */
  readonly issuer: Buffer;
  /** DER. */
  readonly subject: Buffer;
  /** Milliseconds since the epoch. */
  readonly notBefore: number;
  /** Milliseconds since the epoch. */
  readonly notAfter: number;
  readonly isCa: boolean;
  /** How many intermediates may follow; undefined without a limit. */
  readonly pathLength: number | undefined;
  /** Undefined when there is no such extension, which allows everything. */
  readonly keyUsage: ReadonlySet<KeyUsage> | undefined;
  /** OIDs; undefined when there is no such extension, which allows everything. */
  readonly extendedKeyUsage: readonly string[] | undefined;
  readonly altNames: readonly GeneralName[];
  /** Content of the subject key identifier. */
  readonly subjectKeyIdentifier: Buffer | undefined;
  readonly nameConstraints: Node | undefined;
  /** The OIDs of critical extensions that nothing here understands. */
  readonly unknownCritical: readonly string[];
}

export type KeyUsage = (typeof keyUsages)[number];

/** RFC 5280 section 4.2.1.3, by bit. */
const keyUsages = [
  'digitalSignature',
  'contentCommitment',
  'keyEncipherment',
  'dataEncipherment',
  'keyAgreement',
  'keyCertSign',
  'cRLSign',
  'encipherOnly',
  'decipherOnly',
] as const;

/** Reads the fields of one certificate in DER. Throws a plain error for anything that RFC 5280 forbids in them. */
export function readX509Fields(der: Buffer): X509Fields {
  const body = [...childrenOf(childrenOf(decode(der), 'sequence')[0], 'sequence')];
  if (isTagged(body[0], 0)) body.shift();
  const [serial, algorithm, issuer, validity, subject, , ...optional] = body;
  if (issuer === undefined || subject === undefined) throw new Error('a part is missing');
  const [notBefore, notAfter] = childrenOf(validity, 'sequence');
  return {
    serialNumber: Buffer.from(bytesOf(serial, 'integer'), 'latin1')
      .toString('hex')
      .toUpperCase()
      .replace(/^(00)+/, ''),
    signatureAlgorithm: oidOf(childrenOf(algorithm, 'sequence')[0]),
    issuer: encode(issuer),
    subject: encode(subject),
    notBefore: timeOf(notBefore),
    notAfter: timeOf(notAfter),
    ...readExtensions(extensionsOf(optional.find((node) => isTagged(node, 3)))),
  };
}

interface Extension {
  readonly critical: boolean;
  readonly value: Node;
}

function extensionsOf(wrapper: Node | undefined): Map<string, Extension> {
  const extensions = new Map<string, Extension>();
  if (wrapper === undefined) return extensions;
  for (const node of childrenOf(childrenOf(wrapper)[0], 'sequence')) {
    const [id, ...rest] = childrenOf(node, 'sequence');
    const name = oidOf(id);
    if (extensions.has(name)) throw new Error(`the extension ${name} is there twice`);
    const value = rest.at(-1);
    if (value === undefined) throw new Error(`the extension ${name} has no value`);
    const critical = isType(rest[0], 'boolean') && bytesOf(rest[0]) !== '\0';
    extensions.set(name, { critical, value });
  }
  return extensions;
}

type ExtensionFields = Pick<
  X509Fields,
  | 'isCa'
  | 'pathLength'
  | 'keyUsage'
  | 'extendedKeyUsage'
  | 'altNames'
  | 'subjectKeyIdentifier'
  | 'nameConstraints'
  | 'unknownCritical'
>;

function readExtensions(extensions: ReadonlyMap<string, Extension>): ExtensionFields {
  const read = <T>(id: string, reader: (value: Node) => T): T | undefined => {
    const extension = extensions.get(id);
    return extension === undefined ? undefined : reader(insideOctets(extension.value));
  };
  return {
    isCa: false,
    pathLength: undefined,
    ...read(Oid.basicConstraints, basicConstraints),
    keyUsage: read(Oid.keyUsage, keyUsageOf),
    extendedKeyUsage: read(Oid.extendedKeyUsage, (value) => childrenOf(value, 'sequence').map(oidOf)),
    altNames: read(Oid.subjectAltName, generalNames) ?? [],
    subjectKeyIdentifier: read(Oid.subjectKeyIdentifier, (value) =>
      Buffer.from(bytesOf(value, 'octetString'), 'latin1'),
    ),
    nameConstraints: read(Oid.nameConstraints, (value) => value),
    unknownCritical: [...extensions].filter(([id, { critical }]) => critical && !understood.has(id)).map(([id]) => id),
  };
}

const understood: ReadonlySet<string> = new Set([
  Oid.basicConstraints,
  Oid.keyUsage,
  Oid.extendedKeyUsage,
  Oid.subjectAltName,
  Oid.subjectKeyIdentifier,
  Oid.authorityKeyIdentifier,
  Oid.nameConstraints,
  // Policies restrict a path only when the verifier asks for one, or a policy constraint does, which is not in this list.
  Oid.certificatePolicies,
  Oid.policyMappings,
  Oid.inhibitAnyPolicy,
]);

function basicConstraints(value: Node): { isCa: boolean; pathLength: number | undefined } {
  const parts = [...childrenOf(value, 'sequence')];
  const flag = isType(parts[0], 'boolean') ? bytesOf(parts.shift()) : '\0';
  const length = parts.shift();
  const pathLength = length === undefined ? undefined : Number.parseInt(hex(bytesOf(length, 'integer')), 16);
  return { isCa: flag !== '\0', pathLength };
}

function keyUsageOf(value: Node): ReadonlySet<KeyUsage> {
  const octets = Buffer.from(bytesOf(value, 'bitString').slice(1), 'latin1');
  return new Set(keyUsages.filter((_, bit) => (octets[bit >> 3] ?? 0) & (0x80 >> (bit & 7))));
}

function hex(bytes: string): string {
  return Buffer.from(bytes, 'latin1').toString('hex');
}

/** RFC 5280 section 4.1.2.5: seconds are written, the zone is Z, and UTCTime means the years 1950 to 2049. */
function timeOf(node: Node | undefined): number {
  const text = bytesOf(node);
  const digits = isType(node, 'utcTime') ? `${text < '5' ? '20' : '19'}${text}` : text;
  const match = /^(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)Z$/.exec(digits);
  if (match === null || !(isType(node, 'utcTime') || isType(node, 'generalizedTime'))) {
    throw new Error('a time in it is malformed');
  }
  const [, year, month, day, hour, minute, second] = match;
  const time = Date.parse(`${year}-${month}-${day}T${hour}:${minute}:${second}Z`);
  if (Number.isNaN(time)) throw new Error('a time in it does not exist');
  return time;
}
