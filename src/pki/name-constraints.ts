import { bytesOf, childrenOf, decode, isTagged, isType, type Node, oidOf } from './asn1.js';
import { Oid } from './oids.js';
import { type GeneralName, generalName } from './subject-alt-name.js';
import type { X509Fields } from './x509-fields.js';

/**
 * Why the names of a certificate violate the name constraints of a CA above it (RFC 5280 section 4.2.1.10), or undefined
 * when they do not. URIs, DNS names and permitted directory names are compared; a name of another kind that is
 * constrained counts as a violation, as does whatever cannot be read: sdsd had better refuse than guess.
 */
export function nameConstraintFault(constraints: Node, certificate: X509Fields): string | undefined {
  try {
    const names = constrainedNames(certificate);
    for (const node of childrenOf(constraints, 'sequence')) {
      const bases = childrenOf(node).map(baseOf);
      const fault = isTagged(node, 0) ? notPermitted(names, bases) : excluded(names, bases);
      if (fault !== undefined) return fault;
    }
    return undefined;
  } catch {
    return 'its name constraints cannot be read';
  }
}

const Tag = { dns: 2, directory: 4, uri: 6 } as const;

function notPermitted(names: readonly GeneralName[], bases: readonly GeneralName[]): string | undefined {
  for (const name of names) {
    const sameKind = bases.filter(({ tag }) => tag === name.tag);
    if (sameKind.length > 0 && !sameKind.some((base) => matches(name, base) === true)) {
      return `it does not permit ${shown(name)}`;
    }
  }
  return undefined;
}

function excluded(names: readonly GeneralName[], bases: readonly GeneralName[]): string | undefined {
  const name = names.find((candidate) =>
    bases.some((base) => {
      if (base.tag !== candidate.tag) return false;
      // Directory names compare without regard to case and spacing, which only a full comparison would rule out.
      return base.tag === Tag.directory || matches(candidate, base) !== false;
    }),
  );
  return name === undefined ? undefined : `it excludes ${shown(name)}`;
}

/** Undefined when it cannot be told. */
function matches(name: GeneralName, base: GeneralName): boolean | undefined {
  switch (name.tag) {
    case Tag.uri:
      return matchesHost(/^[^/?#]*:\/\/([^/?#:@]+)/.exec(name.value)?.[1], base.value);
    case Tag.dns: {
      const host = name.value.toLowerCase();
      const domain = base.value.toLowerCase().replace(/^\./, '');
      return domain === '' || host === domain || host.endsWith(`.${domain}`);
    }
    case Tag.directory:
      return isPrefix(base.value, name.value);
    default:
      return undefined;
  }
}

function matchesHost(host: string | undefined, base: string): boolean | undefined {
  if (host === undefined) return undefined;
  const [wanted, given] = [base.toLowerCase(), host.toLowerCase()];
  return wanted.startsWith('.') ? given.endsWith(wanted) && given !== wanted : given === wanted;
}

/** Whether the RDNs of `base` are the first ones of `name`; both are the DER of a Name. */
function isPrefix(base: string, name: string): boolean {
  const [wanted, given] = [rdnsOf(base), rdnsOf(name)];
  return wanted.every((rdn, index) => JSON.stringify(rdn) === JSON.stringify(given[index]));
}

function rdnsOf(name: string): readonly Node[] {
  return childrenOf(decode(Buffer.from(name, 'latin1')), 'sequence');
}

/** The alternative names, the subject, and a common name that looks like a host when there is no DNS name. */
function constrainedNames({ altNames, subject }: X509Fields): GeneralName[] {
  const rdns = childrenOf(decode(subject), 'sequence');
  const names = [...altNames];
  if (rdns.length > 0) names.push({ tag: Tag.directory, value: subject.toString('latin1') });
  if (altNames.some(({ tag }) => tag === Tag.dns)) return names;
  for (const attribute of rdns.flatMap((rdn) => childrenOf(rdn, 'set'))) {
    const [id, value] = childrenOf(attribute, 'sequence');
    if (oidOf(id) === Oid.commonName && /^[\w-]+(\.[\w-]+)+\.?$/.test(bytesOf(value))) {
      names.push({ tag: Tag.dns, value: bytesOf(value) });
    }
  }
  return names;
}

function baseOf(subtree: Node): GeneralName {
  const [base, ...limits] = childrenOf(subtree, 'sequence');
  if (base === undefined || limits.length > 0 || isType(base, 'sequence')) throw new Error('it is malformed');
  return generalName(base);
}

function shown({ tag, value }: GeneralName): string {
  if (tag === Tag.directory) return 'its subject';
  return tag === Tag.uri || tag === Tag.dns ? JSON.stringify(value) : `its name of kind ${tag}`;
}
