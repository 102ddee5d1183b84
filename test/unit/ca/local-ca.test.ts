import assert from 'node:assert/strict';
import { createPublicKey } from 'node:crypto';
import { chmod, chown, lstat, mkdir, mkdtemp, readdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, test } from 'node:test';
import { type LocalCa, type LocalCaOptions, openLocalCa } from '../../../src/ca/index.js';
import { createCsr, encodePrivateKey, joinPem, type KeyAlgorithm, verifyIssued } from '../../../src/pki/index.js';
import type { SignedChain } from '../../../src/secrets/ca-client.js';
import { VirtualClock } from '../../../src/testing/virtual-clock.js';
import { HOUR, IDENTITY, intermediate, type Keyed, leaf, NOW, newKey, root } from '../pki/issuing.js';

const DAY = 24 * HOUR;
const signal = new AbortController().signal;
const key = newKey();

let home: string;
let directory: string;
let clock: VirtualClock;

beforeEach(async () => {
  home = await mkdtemp(join(tmpdir(), 'sdsd-ca-'));
  directory = join(home, 'state', 'ca');
  clock = new VirtualClock(NOW);
});

afterEach(() => rm(home, { recursive: true }));

/** Sets the clock, as a host does that slept. */
function stepTo(time: number): void {
  clock.jump(time - clock.now());
}

function open(options: Partial<LocalCaOptions> = {}): Promise<LocalCa> {
  return openLocalCa({ directory, trustDomain: 'cluster.local', clock, ...options });
}

interface Ask {
  readonly ttl?: number;
  readonly sans?: readonly string[];
  readonly csrSans?: readonly string[];
}

function sign(ca: LocalCa, { ttl = HOUR, sans = [IDENTITY], csrSans = sans }: Ask = {}): Promise<SignedChain> {
  return ca.sign({ csr: createCsr({ key, uriSans: csrSans }), sans, ttl }, signal);
}

function verify({ chain, roots }: SignedChain, now = clock.now()): void {
  verifyIssued({ chain, roots, publicKey: createPublicKey(key), identity: IDENTITY, now });
}

async function rootOf(ca: LocalCa): Promise<string | undefined> {
  return (await ca.roots(signal))?.[0]?.fingerprint;
}

describe('a new local CA', () => {
  test('makes a root for ten years that names its trust domain', async () => {
    const [certificate] = (await (await open()).roots(signal)) ?? [];
    assert.ok(certificate?.selfSigned && certificate.isCa);
    assert.match(certificate.x509.subject, /^O=cluster\.local\nCN=sdsd local CA root [0-9a-f]{8}$/);
    assert.deepEqual(certificate.uriSans, ['spiffe://cluster.local']);
    assert.deepEqual([certificate.notBefore, certificate.notAfter], [NOW - 60_000, NOW + 3650 * DAY]);
  });

  test('keeps key and certificate together in one file that its owner alone can read', async () => {
    await open();
    assert.deepEqual(await readdir(directory), ['ca.pem']);
    assert.equal((await stat(join(directory, 'ca.pem'))).mode & 0o777, 0o600);
    assert.equal((await stat(directory)).mode & 0o777, 0o700);
  });

  test('closes a directory that stood open', async () => {
    await mkdir(directory, { recursive: true, mode: 0o755 });
    await open();
    assert.equal((await stat(directory)).mode & 0o777, 0o700);
  });

  test('is one root for all who open it at the same time', async () => {
    const roots = await Promise.all(Array.from({ length: 20 }, async () => rootOf(await open())));
    assert.equal(new Set(roots).size, 1);
    assert.deepEqual(await readdir(directory), ['ca.pem']);
  });

  test('refuses a trust domain that is none', async () => {
    await assert.rejects(open({ trustDomain: 'Cluster.Local' }), { code: 'ERR_SDSD_SPIFFE_ID' });
    await assert.rejects(open({ trustDomain: 'a/b' }), { code: 'ERR_SDSD_SPIFFE_ID', message: /holds "\/"/ });
  });

  test('says where it could not be stored', async () => {
    await writeFile(join(home, 'state'), '');
    await assert.rejects(open(), { code: 'ERR_SDSD_CA_FILES', message: /state\/ca\/ca\.pem/ });
  });
});

describe('a local CA that is opened again', () => {
  test('is the same one', async () => {
    const first = await open();
    const second = await open();
    assert.equal(await rootOf(second), await rootOf(first));
    const signed = await sign(first);
    verify({ chain: signed.chain, roots: (await second.roots(signal)) ?? [] });
  });

  const broken: [string, (content: string) => string, RegExp][] = [
    ['empty', () => '', /no root/],
    ['cut off in the middle', (content) => content.slice(0, content.length / 2), /ca\.pem.*(cut off|missing)/],
    [
      'without its certificate',
      (content) => content.slice(0, content.indexOf('-----BEGIN CERT')),
      /certificate is missing/,
    ],
    ['without its key', (content) => content.slice(content.indexOf('-----BEGIN CERT')), /certificate is missing|key/],
    [
      "with another CA's key",
      (content) => encodePrivateKey(newKey(), 'pkcs8') + content.slice(content.indexOf('-----BEGIN CERT')),
      /does not belong/,
    ],
    ['of a leaf', () => pem(leaf(root('Root'))), /no root/],
    ['full of other things', (content) => content.repeat(3), /too much/],
  ];
  for (const [name, change, message] of broken) {
    test(`refuses a file that is ${name}, and leaves it alone`, async () => {
      await open();
      const file = join(directory, 'ca.pem');
      const content = change(await readFile(file, 'utf8'));
      await writeFile(file, content);
      await assert.rejects(open(), { code: 'ERR_SDSD_CA_FILES', message, hint: /backup/ });
      assert.equal(await readFile(file, 'utf8'), content);
    });
  }

  test('refuses a file that others can read, with the command that helps', async () => {
    await open();
    const file = join(directory, 'ca.pem');
    await chmod(file, 0o640);
    await assert.rejects(open(), { code: 'ERR_SDSD_CA_FILES', hint: `run: chmod 600 ${file}` });
  });

  const misplaced: readonly [name: string, put: (file: string) => Promise<unknown>, message: RegExp, skip?: boolean][] =
    [
      [
        'is a link to nothing: a volume that is not mounted',
        (file) => symlink(join(home, 'volume', 'ca.pem'), file),
        /ca\.pem is a symbolic link to .*volume\/ca\.pem, which does not exist/,
      ],
      ['is a directory', (file) => mkdir(file), /it is not a file/],
      [
        'belongs to another user',
        async (file) => {
          await writeFile(file, 'theirs', { mode: 0o600 });
          await chown(file, 65_534, 65_534);
        },
        /ca\.pem belongs to the user with the ID 65534/,
        process.getuid?.() !== 0,
      ],
      [
        "stands in another user's directory, behind a link",
        async (file) => {
          await mkdir(join(home, 'theirs'));
          await writeFile(join(home, 'theirs', 'ca.pem'), 'ours', { mode: 0o600 });
          await chown(join(home, 'theirs'), 65_534, 65_534);
          await symlink(join(home, 'theirs', 'ca.pem'), file);
        },
        /theirs belongs to the user with the ID 65534/,
        process.getuid?.() !== 0,
      ],
    ];
  for (const [name, put, message, skip = false] of misplaced) {
    test(`refuses a file that ${name}, and makes no other`, {
      skip: skip && 'only root can give files away',
    }, async () => {
      await mkdir(directory, { recursive: true, mode: 0o700 });
      const file = join(directory, 'ca.pem');
      await put(file);
      const before = await lstat(file);
      await assert.rejects(open(), { code: 'ERR_SDSD_CA_FILES', message });
      assert.deepEqual(await readdir(directory), ['ca.pem']);
      assert.equal((await lstat(file)).ino, before.ino);
    });
  }

  test('opens although its root has expired, says so when it is to sign, and signs again after a rotation', async () => {
    await open({ rootLifetime: HOUR });
    stepTo(NOW + HOUR);
    for (const intermediate of [false, true]) {
      const ca = await open({ intermediate });
      await assert.rejects(sign(ca), { code: 'ERR_SDSD_CA', message: /expired at 2031-/, hint: /rotate-root/ });
    }
    const ca = await open();
    await ca.rotateRoot();
    verify(await sign(ca));
  });

  test('says so when its root is not valid yet', async () => {
    await open();
    stepTo(NOW - HOUR);
    await assert.rejects(sign(await open()), { code: 'ERR_SDSD_CA', message: /not valid before/, hint: /clock/ });
  });
});

describe('a leaf', () => {
  const algorithms: KeyAlgorithm[] = [
    { kind: 'ecdsa', curve: 'P-256' },
    { kind: 'ecdsa', curve: 'P-384' },
    { kind: 'rsa', bits: 2048 },
  ];
  for (const algorithm of algorithms) {
    test(`of a CA with the key ${JSON.stringify(algorithm)} is good`, async () => {
      const ca = await open({ algorithm });
      const signed = await sign(ca);
      verify(signed);
      assert.deepEqual([signed.chain.length, signed.roots.length], [1, 1]);
    });
  }

  const lifetimes: [string, number, number, number][] = [
    ['an hour', 0, HOUR, NOW + HOUR],
    ['a second', 0, 1000, NOW + 1000],
    ['a part of a second more, rounded up', 0, 1001, NOW + 2000],
    ['an hour from the middle of a second, rounded up', 400, HOUR, NOW + HOUR + 1000],
    ['more than the root has left, cut down to it', 0, 20 * 365 * DAY, NOW + 3650 * DAY],
  ];
  for (const [name, offset, ttl, notAfter] of lifetimes) {
    test(`lives for ${name}`, async () => {
      const ca = await open();
      await clock.advance(offset);
      const [certificate] = (await sign(ca, { ttl })).chain;
      assert.equal(certificate?.notAfter, notAfter);
    });
  }

  test('begins a minute ago, but never before its root', async () => {
    const ca = await open({ backdate: 0 });
    await clock.advance(10_000);
    const late = await open();
    assert.equal((await sign(late)).chain[0]?.notBefore, NOW);
    await clock.advance(HOUR);
    assert.equal((await sign(late)).chain[0]?.notBefore, NOW + 10_000 + HOUR - 60_000);
    assert.equal((await sign(ca)).chain[0]?.notBefore, NOW + 10_000 + HOUR);
  });

  test('takes its serial number from the random bytes that are injected', async () => {
    const ca = await open({ random: (size) => Buffer.alloc(size, 0xab) });
    assert.equal((await sign(ca)).chain[0]?.serialNumber, 'AB'.repeat(16));
  });

  test('may be of another trust domain, and hold several identities', async () => {
    const sans = ['spiffe://example.org/a', 'spiffe://example.com/b'];
    assert.deepEqual((await sign(await open(), { sans })).chain[0]?.uriSans, sans);
  });

  const refused: [string, Ask, RegExp][] = [
    [
      'another identity in the CSR',
      { csrSans: ['spiffe://cluster.local/ns/a/sa/b'] },
      /CSR asks for .*b", but the request/,
    ],
    ['one identity more in the CSR', { csrSans: [IDENTITY, IDENTITY] }, /CSR asks for/],
    ['no identity in the CSR', { csrSans: [] }, /no URI SAN/],
    ['no identity at all', { sans: [] }, /no identity/],
    ['an identity that is no SPIFFE ID', { sans: ['https://example.org'] }, /not a SPIFFE ID/],
    ['a lifetime below a second', { ttl: 999 }, /lifetime of 999 ms/],
    ['a lifetime that is no number', { ttl: Number.NaN }, /lifetime of NaN/],
    ['an endless lifetime', { ttl: Number.POSITIVE_INFINITY }, /lifetime of Infinity/],
    ['a lifetime above the limit', { ttl: DAY + 1 }, /at most 86400000 ms/],
  ];
  for (const [name, ask, message] of refused) {
    test(`is refused for ${name}`, async () => {
      await assert.rejects(sign(await open({ maxTtl: DAY }), ask), { code: 'ERR_SDSD_CA', message });
    });
  }

  test('is refused for a CSR that is garbage', async () => {
    const ca = await open();
    const request = { csr: Buffer.from('no CSR'), sans: [IDENTITY], ttl: HOUR };
    await assert.rejects(ca.sign(request, signal), { code: 'ERR_SDSD_CA', message: /signing request cannot be used/ });
  });

  test('is not signed once the signal has fired', async () => {
    const ca = await open();
    const reason = new Error('enough');
    const request = { csr: createCsr({ key, uriSans: [IDENTITY] }), sans: [IDENTITY], ttl: HOUR };
    await assert.rejects(ca.sign(request, AbortSignal.abort(reason)), reason);
  });
});

describe('rotateRoot', () => {
  for (const intermediate of [false, true]) {
    test(`signs with a new root from then on, and after a restart${intermediate ? ', with an intermediate' : ''}`, async () => {
      const ca = await open({ intermediate });
      const before = await sign(ca);
      await ca.rotateRoot();
      const after = await sign(ca);
      verify(after);
      const [old, next] = [before.roots[0], after.roots[0]];
      assert.notEqual(old?.x509.subject, next?.x509.subject);
      assert.throws(() => verify({ chain: after.chain, roots: before.roots }), { code: 'ERR_SDSD_CHAIN' });
      assert.equal(await rootOf(await open({ intermediate })), next?.fingerprint);
      assert.deepEqual(await readdir(directory), ['ca.pem']);
      assert.equal((await stat(join(directory, 'ca.pem'))).mode & 0o777, 0o600);
    });
  }

  test('twice at once makes two roots, one after the other, and memory and disk agree', async () => {
    const ca = await open();
    await Promise.all([ca.rotateRoot(), ca.rotateRoot()]);
    assert.equal(await rootOf(await open()), await rootOf(ca));
  });

  test('keeps the old root when the new one cannot be stored', async () => {
    const ca = await open();
    const before = await rootOf(ca);
    await rm(directory, { recursive: true });
    await writeFile(directory, 'a file in its place');
    await assert.rejects(ca.rotateRoot(), { code: 'ERR_SDSD_CA_FILES' });
    assert.equal(await rootOf(ca), before);
    verify(await sign(ca));
  });

  test('makes the directory again that somebody deleted under it', async () => {
    const ca = await open();
    const before = await rootOf(ca);
    await rm(home, { recursive: true });
    await ca.rotateRoot();
    assert.notEqual(await rootOf(ca), before);
    assert.equal(await rootOf(await open()), await rootOf(ca));
    assert.equal((await stat(directory)).mode & 0o777, 0o700);
  });
});

describe('an intermediate', () => {
  test('signs in the place of the root, and is kept over a restart', async () => {
    const first = await sign(await open({ intermediate: true }));
    const second = await sign(await open({ intermediate: true }));
    verify(first);
    assert.equal(first.chain.length, 2);
    assert.equal(first.chain[1]?.notAfter, NOW + 365 * DAY);
    assert.equal(second.chain[1]?.fingerprint, first.chain[1]?.fingerprint);
  });

  test('is issued anew when less than a third of its life is left, once for all who ask', async () => {
    const ca = await open({ intermediate: true });
    const [, first] = (await sign(ca)).chain;
    stepTo(NOW + 243 * DAY);
    assert.equal((await sign(ca)).chain[1]?.fingerprint, first?.fingerprint);
    stepTo(NOW + 244 * DAY);
    const renewed = await Promise.all([sign(ca), sign(ca), sign(ca)]);
    for (const signed of renewed) verify(signed);
    assert.equal(new Set(renewed.map(({ chain }) => chain[1]?.fingerprint)).size, 1);
    assert.notEqual(renewed[0]?.chain[1]?.fingerprint, first?.fingerprint);
  });

  test('goes on signing while it is valid although its successor cannot be stored', async () => {
    const ca = await open({ intermediate: true });
    await rm(directory, { recursive: true });
    await writeFile(directory, 'a file in its place');
    stepTo(NOW + 300 * DAY);
    verify(await sign(ca));
    stepTo(NOW + 365 * DAY);
    await assert.rejects(sign(ca), { code: 'ERR_SDSD_CA_FILES' });
  });

  test('never outlives its root, and is not issued again and again at the end of that', async () => {
    const ca = await open({ intermediate: true, rootLifetime: 30 * DAY });
    const [certificate, first] = (await sign(ca, { ttl: 60 * DAY })).chain;
    assert.deepEqual([certificate?.notAfter, first?.notAfter], [NOW + 30 * DAY, NOW + 30 * DAY]);
    stepTo(NOW + 29 * DAY);
    assert.equal((await sign(ca)).chain[1]?.fingerprint, first?.fingerprint);
  });

  test('comes when a CA without one is opened with one, and goes again', async () => {
    const before = await rootOf(await open());
    assert.equal((await sign(await open({ intermediate: true }))).chain.length, 2);
    const again = await open();
    assert.equal((await sign(again)).chain.length, 1);
    assert.equal(await rootOf(again), before);
  });
});

describe('a CA from files', () => {
  const top = root('Company root');
  const middle = intermediate('Company intermediate', top);
  const low = intermediate('sdsd', middle, { profile: { kind: 'ca', pathLength: 0 } });

  async function files(certificates: readonly Keyed[], signer: Keyed, roots?: readonly Keyed[]): Promise<LocalCa> {
    const paths = {
      certificate: join(home, 'ca-cert.pem'),
      key: join(home, 'ca-key.pem'),
      root: join(home, 'root.pem'),
    };
    await writeFile(paths.certificate, joinPem(certificates.map(({ certificate }) => certificate.pem)));
    await writeFile(paths.key, encodePrivateKey(signer.key, 'traditional'));
    if (roots === undefined) return open({ files: { certificate: paths.certificate, key: paths.key } });
    await writeFile(paths.root, joinPem(roots.map(({ certificate }) => certificate.pem)));
    return open({ files: paths });
  }

  test('signs with a chain that ends in its root, and sends all but the root', async () => {
    const signed = await sign(await files([low, middle, top], low));
    verify(signed);
    assert.deepEqual(
      signed.chain.slice(1).map(({ fingerprint }) => fingerprint),
      [low, middle].map(({ certificate }) => certificate.fingerprint),
    );
    assert.deepEqual(
      signed.roots.map(({ fingerprint }) => fingerprint),
      [top.certificate.fingerprint],
    );
    await assert.rejects(stat(directory), { code: 'ENOENT' });
  });

  test('signs with a root alone', async () => {
    const signed = await sign(await files([top], top));
    verify(signed);
    assert.equal(signed.chain.length, 1);
  });

  test('stands for all the roots of a file of their own', async () => {
    const signed = await sign(await files([low, middle], low, [root('Next'), top]));
    verify(signed);
    assert.equal(signed.roots.length, 2);
  });

  test('cuts leaves down to what its chain has left', async () => {
    const short = intermediate('Short', top, { notAfter: NOW + 1000 });
    const below = intermediate('Below', short);
    assert.equal((await sign(await files([below, short, top], below))).chain[0]?.notAfter, NOW + 1000);
  });

  test('cannot rotate a root that is not its own', async () => {
    const ca = await files([top], top);
    await assert.rejects(ca.rotateRoot(), { code: 'ERR_SDSD_CA', message: /comes from files/ });
  });

  const expired = root('Expired', { notAfter: NOW - 1000 });
  const refused: [string, () => Promise<LocalCa>, RegExp][] = [
    ['a key of another CA', () => files([top], middle), /ca-key\.pem.*not the key/],
    ['a leaf', () => files([leaf(top), top], leaf(top)), /not the key/],
    ['a certificate that may not sign', () => withLeaf(), /may not sign/],
    ['a chain without its root', () => files([low, middle], low), /last certificate is not a root/],
    ['a chain with a hole', () => files([low, top], low), /not issued by CN=Company root/],
    ['an upper intermediate first', () => files([middle, low, top], low), /certificate of the key is number 2 of it/],
    ['a reversed chain', () => files([top, middle, low], low), /in reverse order/],
    [
      'a root before its intermediate',
      () => files([low, top, middle], low),
      /the root is number 2 of it, before number 3/,
    ],
    [
      'the same certificate twice',
      () => files([low, middle, low, top], low),
      /certificates 1 and 3 of it are the same/,
    ],
    [
      'an intermediate for a root',
      () => files([low], low, [top, middle]),
      /root\.pem cannot be used: certificate 2 of it, CN=Company intermediate, is an intermediate/,
    ],
    ['the root of another', () => files([low, middle], low, [root('Other')]), /none of the roots/],
    ['a CA that has expired', () => files([expired], expired), /expired 1 s ago/],
    [
      'a file that is missing',
      () => open({ files: { certificate: '/nowhere/ca.pem', key: '/nowhere/key.pem' } }),
      /nowhere/,
    ],
  ];
  const withLeaf = (): Promise<LocalCa> => {
    const end = leaf(top);
    return files([end, top], end);
  };
  for (const [name, attempt, message] of refused) {
    test(`is refused for ${name}`, async () => {
      await assert.rejects(attempt(), { code: 'ERR_SDSD_CA_FILES', message });
    });
  }
});

function pem({ certificate, key: own }: Keyed): string {
  return `${encodePrivateKey(own, 'pkcs8')}${certificate.pem}`;
}
