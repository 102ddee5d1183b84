import asn1 from 'node-forge/lib/asn1.js';

/**
 * Building and reading of DER (ITU-T X.690) on top of node-forge, for the few structures of this room. Faults are thrown
 * as plain errors; each caller turns them into an error with its own code, because only it knows what was being read.
 */
export interface Node {
  readonly tagClass: number;
  readonly type: number;
  /** Primitive values are strings of one character for each byte. */
  readonly value: string | Node[];
}

const Class = { universal: 0x00, context: 0x80 } as const;
const Type = {
  boolean: 1,
  integer: 2,
  bitString: 3,
  octetString: 4,
  null: 5,
  oid: 6,
  utf8String: 12,
  sequence: 16,
  set: 17,
  utcTime: 23,
  generalizedTime: 24,
} as const;
type TypeName = keyof typeof Type;

/** Reads one DER value that fills the buffer. Refuses BER: what it returns encodes to the same bytes again. */
export function decode(der: Buffer): Node {
  const bytes = der.toString('latin1');
  const node = parsed(bytes);
  if (asn1.toDer(node).getBytes() !== bytes) throw new Error('it is BER, but not DER');
  return node;
}

/** In words of our own: forge's are sentences, and say nothing that helps. */
function parsed(bytes: string): Node {
  try {
    return asn1.fromDer(bytes, { strict: true, parseAllBytes: true, decodeBitStrings: false });
  } catch (cause) {
    throw new Error('it is not DER, or cut off', { cause });
  }
}

export function encode(node: Node): Buffer {
  return Buffer.from(asn1.toDer(node).getBytes(), 'latin1');
}

export function sequence(...children: Node[]): Node {
  return asn1.create(Class.universal, Type.sequence, true, children);
}

export function set(...children: Node[]): Node {
  return asn1.create(Class.universal, Type.set, true, children);
}

/** A [tag] that wraps whole values. */
export function explicit(tag: number, ...children: Node[]): Node {
  return asn1.create(Class.context, tag, true, children);
}

/** A [tag] in the place of a primitive type's own tag. */
export function implicit(tag: number, bytes: string): Node {
  return asn1.create(Class.context, tag, false, bytes);
}

/** A primitive value from its content, one character for each byte. */
export function primitive(type: TypeName, bytes: string): Node {
  return asn1.create(Class.universal, Type[type], false, bytes);
}

export function boolean(value: boolean): Node {
  return primitive('boolean', value ? '\xff' : '\x00');
}

/** A non-negative INTEGER from its big-endian magnitude. */
export function integer(magnitude: Buffer): Node {
  const digits = magnitude.toString('latin1').replace(/^\0+/, '');
  return primitive('integer', digits === '' || digits.charCodeAt(0) > 0x7f ? `\0${digits}` : digits);
}

/** An OCTET STRING that holds the DER of a value. */
export function octetsOf(node: Node): Node {
  return primitive('octetString', asn1.toDer(node).getBytes());
}

/** A BIT STRING of whole octets. */
export function bitString(octets: Buffer): Node {
  return primitive('bitString', `\0${octets.toString('latin1')}`);
}

/** A value that is encoded already, taken as it is. */
export function encoded(der: Buffer): Node {
  const first = der[0] ?? 0;
  const length = der[1] ?? 0;
  const header = length < 0x80 ? 2 : 2 + (length & 0x7f);
  return asn1.create(first & 0xe0, first & 0x1f, false, der.toString('latin1', header));
}

const oids = new Map<string, Node>();

/** An OBJECT IDENTIFIER. Each is encoded once: what this room writes are a dozen constants. */
export function oid(dotted: string): Node {
  let node = oids.get(dotted);
  if (node === undefined) {
    node = primitive('oid', asn1.oidToDer(dotted).getBytes());
    oids.set(dotted, node);
  }
  return node;
}

export function isType(node: Node | undefined, type: TypeName): node is Node {
  return node !== undefined && node.tagClass === Class.universal && node.type === Type[type];
}

export function isTagged(node: Node | undefined, tag: number): node is Node {
  return node !== undefined && node.tagClass === Class.context && node.type === tag;
}

/** What a constructed value holds. */
export function childrenOf(node: Node | undefined, type?: TypeName): readonly Node[] {
  if (node === undefined) throw new Error('a part is missing');
  if (type !== undefined && !isType(node, type)) throw new Error(`a ${type} was expected`);
  if (typeof node.value === 'string') throw new Error('a constructed value was expected');
  return node.value;
}

/** The content of a primitive value, one character for each byte. */
export function bytesOf(node: Node | undefined, type?: TypeName): string {
  if (node === undefined) throw new Error('a part is missing');
  if (type !== undefined && !isType(node, type)) throw new Error(`a ${type} was expected`);
  if (typeof node.value !== 'string') throw new Error('a primitive value was expected');
  return node.value;
}

export function oidOf(node: Node | undefined): string {
  const bytes = bytesOf(node, 'oid');
  if (bytes === '') throw new Error('an object identifier is empty');
  return asn1.derToOid(bytes);
}

/** The octets of a BIT STRING that has no unused bits. */
export function octetsOfBitString(node: Node | undefined): Buffer {
  const bytes = bytesOf(node, 'bitString');
  if (bytes.charCodeAt(0) !== 0) throw new Error('a BIT STRING of whole octets was expected');
  return Buffer.from(bytes.slice(1), 'latin1');
}

/** The value whose DER is in an OCTET STRING. */
export function insideOctets(node: Node | undefined): Node {
  return decode(Buffer.from(bytesOf(node, 'octetString'), 'latin1'));
}
