import assert from 'node:assert/strict';
import { createPublicKey, type KeyObject } from 'node:crypto';
import { describe, test } from 'node:test';
import { type Certificate, parseCertificate, pathValidity, verifyIssued } from '../../../src/pki/index.js';
import { HOUR, IDENTITY, intermediate, type Keyed, leaf, NOW, newKey, root } from './issuing.js';

const ca = root('Root');
const middle = intermediate('Intermediate', ca);
const end = leaf(middle);
const other = root('Other');

interface Case {
  readonly chain?: readonly Keyed[];
  readonly roots?: readonly Keyed[];
  readonly key?: KeyObject;
  readonly identity?: string | undefined;
  readonly now?: number;
}

function verify({
  chain = [end, middle],
  roots = [ca],
  key = chain[0]?.key ?? end.key,
  now = NOW,
  ...rest
}: Case): void {
  const certificates = (all: readonly Keyed[]): Certificate[] => all.map(({ certificate }) => certificate);
  const identity = 'identity' in rest ? rest.identity : IDENTITY;
  verifyIssued({
    chain: certificates(chain),
    roots: certificates(roots),
    publicKey: createPublicKey(key),
    identity,
    now,
  });
}

describe('verifyIssued accepts', () => {
  const renewedRoot = root('Root', { key: ca.key });
  const rsa = root('RSA root', { key: newKey('RSA') });
  const p384 = root('P-384 root', { key: newKey('P-384') });
  const low = intermediate('Low', middle);
  const accepted: [string, Case][] = [
    ['a leaf below an intermediate', {}],
    ['a leaf below the root', { chain: [leaf(ca)] }],
    ['a chain that ends with its root', { chain: [end, middle, ca] }],
    ['a chain of four', { chain: [leaf(low), low, middle] }],
    ['the right root among others, twice', { roots: [other, ca, ca] }],
    ['another certificate of the same root', { roots: [renewedRoot] }],
    ['a chain that ends with another certificate of the root', { chain: [end, middle, renewedRoot] }],
    ['an intermediate as root', { roots: [middle], chain: [end] }],
    ['a chain that goes on above what is trusted', { roots: [middle], chain: [end, middle, ca] }],
    ['a good root beside an expired one of the same name and key', { roots: [expired('Root', ca.key), ca] }],
    ['any identity when none is asked for', { identity: undefined }],
    ['an RSA leaf below an RSA root', { chain: [leaf(rsa, { key: newKey('RSA') })], roots: [rsa] }],
    ['a P-256 leaf below a P-384 root', { chain: [leaf(p384)], roots: [p384] }],
    ['the first moment of validity', { now: NOW - HOUR }],
    ['the last moment before its end', { now: NOW + HOUR - 1 }],
  ];
  for (const [name, input] of accepted) test(name, () => verify(input));

  test('a private key in the place of its public half', () => {
    const { certificate, key } = leaf(ca);
    const roots = [ca.certificate];
    verifyIssued({ chain: [certificate], roots, publicKey: key, identity: IDENTITY, now: NOW });
  });
});

describe('verifyIssued refuses', () => {
  const limited = root('Limited', { profile: { kind: 'ca', pathLength: 0 } });
  const belowLimited = intermediate('Below', limited);
  const old = intermediate('Old', ca, { notAfter: NOW - 60_000 });
  const young = intermediate('Young', ca, { notBefore: NOW + 60_000 });
  const expiredRoot = expired('Expired root');
  const sameName = root('Intermediate');
  const forged = { certificate: leaf(middle).certificate, key: newKey() };
  const noCa = { ...leaf(ca, { subject: { commonName: 'No CA' } }) };

  const refused: [string, Case, RegExp][] = [
    ['an empty chain', { chain: [] }, /chain is empty/],
    ['no roots', { roots: [] }, /no root to verify/],
    ['a leaf for another key', { key: forged.key }, /leaf is for another key/],
    [
      'a root before the leaf',
      { chain: [ca, middle, end], key: end.key },
      /wrong order: the leaf is certificate 3 of 3/,
    ],
    [
      'intermediates in the wrong order',
      { chain: [end, ca, middle] },
      /wrong order: certificate 3 issued certificate 1/,
    ],
    ['a leaf without a URI SAN', { chain: [leaf(ca, { uriSans: [], subject: { commonName: 'a' } })] }, /no URI SAN/],
    ['a leaf with two URI SANs', { chain: [leaf(ca, { uriSans: [IDENTITY, IDENTITY] })] }, /2 URI SANs/],
    ['another identity', { identity: `${IDENTITY}2` }, /is for "spiffe:.*default", but ".*default2" was asked for/],
    [
      'a URI that is no SPIFFE ID',
      { chain: [leaf(ca, { uriSans: ['https://a'] })], identity: undefined },
      /no SPIFFE ID.*does not begin/,
    ],
    [
      'a CA certificate as leaf',
      { chain: [intermediate('CA', ca, { uriSans: [IDENTITY] })] },
      /leaf is a CA certificate/,
    ],
    ['an expired leaf, by how much', { now: NOW + HOUR + 90_000 }, /the leaf expired 90 s ago, at 2031-06-15T13:00:00/],
    ['a leaf in its last second', { now: NOW + HOUR }, /the leaf expired 0 s ago/],
    ['a leaf of the future', { now: NOW - HOUR - 3 * 60_000 }, /the leaf is not valid for another 3 min/],
    ['an expired intermediate', { chain: [leaf(old), old] }, /certificate 2 of 2 \(CN=Old\) expired 60 s ago/],
    ['an intermediate of the future', { chain: [leaf(young), young] }, /CN=Young\) is not valid for another 60 s/],
    ['an expired root', { chain: [leaf(expiredRoot)], roots: [expiredRoot] }, /root CN=Expired root, which expired/],
    ['a chain to no known root', { roots: [other] }, /issued by CN=Root, which is none of the roots \(CN=Other\)/],
    ['a missing intermediate', { chain: [end] }, /issued by CN=Intermediate, which is none of the roots/],
    ['a wrong intermediate', { chain: [end, other] }, /not issued by CN=Other, but by CN=Intermediate/],
    ['an intermediate of the same name with another key', { chain: [end, sameName] }, /that has another key/],
    ['a root of the same name with another key', { chain: [end, middle], roots: [root('Root')] }, /another key/],
    [
      'a wrong signature',
      { chain: [tampered(end), middle] },
      /the leaf is not issued by CN=Intermediate: the signature is/,
    ],
    ['a wrong signature by the root', { chain: [end, tampered(middle)] }, /CN=Root: the signature is wrong/],
    ['an issuer that is no CA', { chain: [leaf(noCa), noCa] }, /that is no CA certificate/],
    ['a leaf as root', { chain: [leaf(noCa)], roots: [noCa] }, /that is no CA certificate/],
    ['a leaf that is itself among the roots', { chain: [end], roots: [end] }, /none of the roots/],
    [
      'more CAs than the path length allows',
      { chain: [leaf(belowLimited), belowLimited], roots: [limited] },
      /path length/,
    ],
  ];
  for (const [name, input, message] of refused) {
    test(name, () => assert.throws(() => verify(input), { code: 'ERR_SDSD_CHAIN', message }));
  }
});

describe('pathValidity', () => {
  const roots = [ca.certificate];

  test('ends with whatever ends first, the root among them', () => {
    const short = intermediate('Short', ca, { notAfter: NOW + 1_000 });
    const dying = root('Dying', { notAfter: NOW + 2_000 });
    const ends = (chain: Certificate[], anchors: Certificate[] = roots): number =>
      pathValidity({ chain, roots: anchors, now: NOW }).notAfter;
    assert.equal(ends([end.certificate, middle.certificate]), end.certificate.notAfter);
    assert.equal(ends([leaf(short).certificate, short.certificate]), NOW + 1_000);
    assert.equal(ends([leaf(dying).certificate], [dying.certificate]), NOW + 2_000);
    assert.throws(() => ends([]), { code: 'ERR_SDSD_CHAIN' });
  });

  test('begins when all have begun, and tells apart what the CA has left', () => {
    const young = root('Young', { notBefore: NOW - 1_000, notAfter: NOW + 5_000 });
    const chain = [leaf(young).certificate];
    const validity = pathValidity({ chain, roots: [young.certificate], now: NOW });
    assert.equal(validity.notBefore, NOW - 1_000);
    assert.equal(validity.issuersNotAfter, NOW + 5_000);
  });
});

function expired(name: string, key = newKey()): Keyed {
  return root(name, { key, notAfter: NOW - HOUR });
}

/** The same certificate with another last octet in its signature. */
function tampered({ certificate, key }: Keyed): Keyed {
  const der = Buffer.from(certificate.der);
  der[der.length - 1] = (der.at(-1) ?? 0) ^ 1;
  return { key, certificate: parseCertificate(der) };
}
