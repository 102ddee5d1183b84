import { boolean, childrenOf, encode, implicit, isTagged, type Node, octetsOf, oid, sequence } from './asn1.js';
import { Oid } from './oids.js';

const URI = 6;

/**
 * The subject alternative name extension with these URIs, RFC 5280 section 4.2.1.6. It is critical exactly when the
 * subject is empty. Throws a plain error for a URI that IA5String cannot hold.
 */
export function subjectAltName(uris: readonly string[], critical: boolean): Node {
  const names = sequence(...uris.map((uri) => implicit(URI, ia5(uri))));
  return critical
    ? sequence(oid(Oid.subjectAltName), boolean(true), octetsOf(names))
    : sequence(oid(Oid.subjectAltName), octetsOf(names));
}

/** One name of a SAN extension, or the base of a name constraint. */
export interface GeneralName {
  /** The context tag: 2 DNS, 4 directory name, 6 URI, 7 IP address, … */
  readonly tag: number;
  /** The content, one character for each byte; of a directory name the DER of the name. */
  readonly value: string;
}

/** The names in the value of a SAN extension, in order. */
export function generalNames(value: Node): GeneralName[] {
  return childrenOf(value, 'sequence').map(generalName);
}

export function generalName(node: Node): GeneralName {
  for (let tag = 0; tag <= 8; tag++) {
    if (!isTagged(node, tag)) continue;
    return { tag, value: typeof node.value === 'string' ? node.value : node.value.map(latin1).join('') };
  }
  throw new Error('a name is of no known kind');
}

/** The URIs among names. */
export function urisOf(names: readonly GeneralName[]): string[] {
  return names.filter(({ tag }) => tag === URI).map(({ value }) => ia5(value));
}

function latin1(node: Node): string {
  return encode(node).toString('latin1');
}

function ia5(text: string): string {
  for (let at = 0; at < text.length; at++) {
    if (text.charCodeAt(at) > 0x7f) throw new Error('a URI holds characters outside ASCII');
  }
  return text;
}
