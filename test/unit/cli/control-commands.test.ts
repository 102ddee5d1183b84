import assert from 'node:assert/strict';
import { createPublicKey } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { type DaemonControl, startControlServer } from '../../../src/admin/index.js';
import { systemClock } from '../../../src/clock.js';
import { SdsdError } from '../../../src/errors.js';
import { silentLogger } from '../../../src/log.js';
import { parseCsr, pemBlocks, readPrivateKey } from '../../../src/pki/index.js';
import { VirtualClock } from '../../../src/testing/virtual-clock.js';
import { fakeDaemonControl, STATUS } from '../admin/fake-daemon-control.js';
import { type CliResult, cli, workDirectory } from './fake-io.js';
import { NOW, testCa } from './test-ca.js';

const ID = 'spiffe://cluster.local/ns/default/sa/ops';
const ca = await testCa();
const clock = new VirtualClock(NOW + 3_600_000);

interface Setup {
  readonly cwd: string;
  readonly daemon: ReturnType<typeof fakeDaemonControl>;
  run(...args: string[]): Promise<CliResult>;
}

/** A daemon with its control socket at the default place below the working directory. */
async function setup(t: TestContext, overrides: Partial<DaemonControl> = {}, isTTY = false): Promise<Setup> {
  const cwd = workDirectory(t);
  const daemon = fakeDaemonControl(overrides);
  const server = await startControlServer({
    path: join(cwd, 'var/run/sdsd/admin.sock'),
    daemon,
    clock: systemClock,
    log: silentLogger,
  });
  t.after(() => server.close());
  return { cwd, daemon, run: (...args) => cli(args, { cwd, clock, isTTY }) };
}

/** Signs what it is asked to; `change` spoils the answer. */
function signing(
  change: (identity: string, spki: Buffer) => { identity: string; spki: Buffer } = (identity, spki) => ({
    identity,
    spki,
  }),
) {
  return {
    issue: async ({ identity, csrPem }: { identity: string; csrPem: string }) => {
      const { subjectPublicKeyInfo, uriSans } = parseCsr(pemBlocks(Buffer.from(csrPem))[0]?.der ?? Buffer.alloc(0));
      assert.deepEqual(uriSans, [identity]);
      const asked = change(identity, subjectPublicKeyInfo);
      return { chainPem: ca.certify(asked.spki, asked.identity).pem, rootsPem: ca.root.pem, askedTtlMs: 3_600_000 };
    },
  };
}

test('status shows secrets, subscribers and names that are not served', async (t) => {
  const unknownNames = [...STATUS.unknownNames, { name: 'once', count: 1 }];
  const { run } = await setup(t, { status: () => ({ ...STATUS, unknownNames }) });
  const { code, out, err } = await run('status');
  assert.equal(err, '');
  assert.equal(code, 0);
  for (const line of [
    /^sdsd 1\.2\.3, process 42, up 1h$/m,
    /^CA +local CA, failing: the disk is full$/m,
    /^ +ends 2039-12-30T00:00:00Z \(3649d 23h left\)$/m,
    /^NAME +STATE +NOT AFTER +LEFT +RENEWS +CLIENTS +SERIAL$/m,
    /^default +available +2030-01-02T00:00:00Z +23h +in 11h +2 +0A1B\n {2}spiffe:\/\/cluster\.local\/ns\/default\/sa\/default\n {2}failed 3 times: the disk is full$/m,
    /^ROOTCA +initializing +- +- +- +0 +-\n {2}trust anchors$/m,
    /^ROOT \(SHA-256\) +NOT AFTER +LEFT +STAYS$/m,
    /^ab12ab12ab12ab12… +2039-12-30T00:00:00Z +3649d 23h +the CA stands for it\n {2}O=cluster\.local, CN=sdsd local CA root$/m,
    /^cd34cd34cd34cd34… +2039-12-30T00:00:00Z +3649d 23h +until 2030-01-02T00:00:00Z, for certificates under it$/m,
    /^envoy\\u001b\[31m +c1 +delta +default +nothing\n {2}rejected: bad key$/m,
    /^NAMES THAT ARE NOT SERVED +ASKED FOR$/m,
    /^"nope " +4 times$/m,
    /^"once" +once$/m,
  ]) {
    assert.match(out, line);
  }
  assert.ok(!out.includes('\u001b'), 'no colours without a terminal');
});

test('status fits a terminal of a hundred columns, whatever is in it', async (t) => {
  const [secret] = STATUS.secrets;
  const [root] = STATUS.roots;
  const [subscriber] = STATUS.subscribers;
  assert.ok(secret && root && subscriber);
  const long = 'x'.repeat(300);
  const status = {
    ...STATUS,
    secrets: [{ ...secret, name: long, identity: `spiffe://${long}`, serialNumber: 'AB'.repeat(16), lastError: long }],
    roots: [{ ...root, subject: long }],
    subscribers: [
      { ...subscriber, nodeId: long, names: [{ name: long, sentVersion: null, ackedVersion: null, lastNack: long }] },
    ],
    unknownNames: [{ name: long, count: 1_000_000 }],
  };
  const { run } = await setup(t, { status: () => status });
  for (const line of (await run('status')).out.split('\n').slice(4)) assert.ok(line.length <= 100, line);
});

test('status is coloured on a terminal, unless NO_COLOR is set', async (t) => {
  const { run, cwd } = await setup(t, {}, true);
  assert.ok((await run('status')).out.includes('\u001b[31mfailing'));
  assert.ok(!(await cli(['status'], { cwd, clock, isTTY: true, env: { NO_COLOR: '1' } })).out.includes('\u001b'));
});

test('status, rotate and rotate-root print JSON for programs', async (t) => {
  const { run } = await setup(t);
  const status = JSON.parse((await run('status', '-o', 'json')).out);
  assert.equal(status.pid, 42);
  // As `get -o json` has them.
  assert.equal(status.secrets[0].version, '7');
  assert.equal(status.secrets[0].notAfter, '2030-01-02T00:00:00Z');
  assert.equal(status.startedAt, '2030-01-01T00:00:00Z');
  assert.deepEqual(status.subscribers[0].names[0], {
    name: 'default',
    sentVersion: '7',
    ackedVersion: null,
    lastNack: 'bad key',
  });
  assert.equal(JSON.parse((await run('rotate', '-o', 'json')).out).rotated[0].notAfter, '2030-01-02T00:00:00Z');
  assert.equal(JSON.parse((await run('rotate', '-o', 'json')).out).rotated[0].serialNumber, '0A1C');
  assert.equal(JSON.parse((await run('rotate-root', '-o', 'json')).out).fingerprint, 'ab12');
});

test('rotate renews all certificates or the one that is named', async (t) => {
  const { run, daemon } = await setup(t);
  assert.match((await run('rotate')).out, /^default +0A1C +2030-01-02T00:00:00Z$/m);
  assert.match((await run('rotate', 'web')).out, /^web +0A1C/m);
  assert.match((await run('rotate-root')).out, /^new root +SHA-256 ab12\nnot after +2040-01-01T00:00:00Z\n$/);
  assert.deepEqual(daemon.calls, [['rotate', undefined], ['rotate', 'web'], ['rotateRoot']]);
});

test("shows the daemon's refusal with its code and exits with 1", async (t) => {
  const { run } = await setup(t, {
    rotate: async () => {
      throw new SdsdError('ERR_SDSD_RESOURCE_NAME', 'there is no web', { hint: 'see sdsd status' });
    },
  });
  assert.deepEqual(await run('rotate', 'web'), {
    code: 1,
    out: '',
    err: 'sdsd: there is no web [ERR_SDSD_RESOURCE_NAME]\n  try: see sdsd status\n',
  });
});

test('says how to start the daemon when none runs', async (t) => {
  const { code, err } = await cli(['status'], { cwd: workDirectory(t) });
  assert.equal(code, 1);
  assert.match(err, /is sdsd running\? \[ERR_SDSD_CONTROL\]\n {2}try: start it with `sdsd run`/);
});

test('ca export prints the roots, or writes them to a file that did not exist', async (t) => {
  const { run, cwd } = await setup(t);
  assert.equal((await run('ca', 'export')).out, 'roots\n');
  assert.equal((await run('ca', 'export', '--out', '-')).out, 'roots\n');
  const refused = await run('ca', 'export', '--out', 'deep/roots.pem');
  assert.match(refused.err, /the directory .*deep does not exist \[ERR_SDSD_OUTPUT\]/);
  assert.ok(!existsSync(join(cwd, 'deep')));
  mkdirSync(join(cwd, 'deep'));
  assert.deepEqual(await run('ca', 'export', '--out', 'deep/roots.pem'), { code: 0, out: '', err: '' });
  assert.equal(readFileSync(join(cwd, 'deep/roots.pem'), 'utf8'), 'roots\n');
  assert.match((await run('ca', 'export', '--out', 'deep/roots.pem')).err, /exists already.*\[ERR_SDSD_OUTPUT\]/);
  assert.equal((await run('ca', 'export', '--out', 'deep/roots.pem', '--force')).code, 0);
  assert.match((await run('ca', 'export', '--out', 'deep', '--force')).err, /is not a file/);
  const empty = await run('ca', 'export', '--out', '');
  assert.equal(empty.code, 2);
  assert.match(empty.err, /--out is empty \[ERR_SDSD_USAGE\]/);
});

test('rotate, rotate-root and issue print nothing on success with --quiet', async (t) => {
  const { run, cwd, daemon } = await setup(t, signing());
  for (const args of [['rotate'], ['rotate', '-o', 'json'], ['rotate-root'], ['issue', ID, '--out', 'ops']]) {
    assert.deepEqual(await run('-q', ...args), { code: 0, out: '', err: '' });
  }
  assert.equal(daemon.calls.length, 3);
  assert.ok(existsSync(join(cwd, 'ops/key.pem')));
});

test('issue writes a key that never left, its certificate and the roots', async (t) => {
  const { run, cwd } = await setup(t, signing());
  const { code, out, err } = await run('issue', ID, '--out', 'ops', '--ttl', '1h');
  assert.equal(err, '');
  assert.equal(code, 0);
  const directory = join(cwd, 'ops');
  assert.deepEqual(readdirSync(directory).sort(), ['cert-chain.pem', 'key.pem', 'root-cert.pem']);
  assert.equal(statSync(join(directory, 'key.pem')).mode & 0o777, 0o600);
  const key = readPrivateKey(readFileSync(join(directory, 'key.pem')));
  const { X509Certificate } = await import('node:crypto');
  const leaf = new X509Certificate(readFileSync(join(directory, 'cert-chain.pem')));
  assert.ok(leaf.checkPrivateKey(key));
  assert.ok(leaf.publicKey.equals(createPublicKey(key)));
  assert.equal(leaf.subjectAltName, `URI:${ID}`);
  assert.equal(readFileSync(join(directory, 'root-cert.pem'), 'utf8'), ca.root.pem);
  assert.match(out, new RegExp(`\n  in a new directory, ${directory}:\n`));
  assert.match(out, new RegExp(`curl .*--cert ${directory}/cert-chain.pem --key ${directory}/key.pem`));
});

test('issue passes the lifetime on, and leaves it to the daemon without --ttl', async (t) => {
  const { run, daemon } = await setup(t);
  await run('issue', ID, '--out', 'a', '--ttl', '90m');
  await run('issue', ID, '--out', 'b');
  const ttls = daemon.calls.map((call) => (Array.isArray(call) ? call[1].ttlMs : undefined));
  assert.deepEqual(ttls, [5_400_000, undefined]);
});

test('issue overwrites files only with --force, and asks nothing of the daemon before', async (t) => {
  const { run, cwd, daemon } = await setup(t, signing());
  assert.equal((await run('issue', ID, '--out', '.')).code, 0);
  const before = readFileSync(join(cwd, 'key.pem'), 'utf8');
  const refused = await run('issue', ID, '--out', '.');
  assert.equal(refused.code, 1);
  assert.match(refused.err, /key\.pem exists already, and nothing was written \[ERR_SDSD_OUTPUT\]\n {2}try: .*--force/);
  assert.equal(readFileSync(join(cwd, 'key.pem'), 'utf8'), before);
  assert.deepEqual(daemon.calls, []);
  assert.equal((await run('issue', ID, '--out', '.', '--force')).code, 0);
  assert.notEqual(readFileSync(join(cwd, 'key.pem'), 'utf8'), before);
});

test('issue writes nothing when the certificate is for another key or identity', async (t) => {
  const stranger = await ca.leaf(ID);
  const { subjectPublicKeyInfo } = await import('../../../src/pki/index.js');
  for (const change of [
    (identity: string) => ({ identity, spki: subjectPublicKeyInfo(stranger.key) }),
    (_identity: string, spki: Buffer) => ({ identity: 'spiffe://cluster.local/other', spki }),
  ]) {
    const { run, cwd } = await setup(t, signing(change));
    const { code, err } = await run('issue', ID, '--out', 'ops');
    assert.equal(code, 1);
    assert.match(err, /another key or identity.*\[ERR_SDSD_CHAIN\]/);
    assert.ok(!existsSync(join(cwd, 'ops')));
  }
});

test('issue refuses a malformed identity or lifetime before it looks for the daemon', async (t) => {
  const cwd = workDirectory(t);
  const cases: readonly [args: readonly string[], err: RegExp][] = [
    [['ops', '--out', 'o'], /\[ERR_SDSD_SPIFFE_ID\]/],
    [[ID, '--out', 'o', '--ttl', '1'], /--ttl 1 cannot be used: the number needs a unit.*\[ERR_SDSD_USAGE\]/],
    [[ID, '--out', 'o', '--ttl', '1ms'], /too short/],
    [[ID, '--out', ''], /--out is empty/],
    [[ID, '--out', '-'], /--out - cannot take three files/],
  ];
  for (const [args, err] of cases) {
    const result = await cli(['issue', ...args], { cwd });
    assert.equal(result.code, 2);
    assert.match(result.err, err);
  }
  writeFileSync(join(cwd, 'file'), '');
  assert.match((await cli(['issue', ID, '--out', 'file'], { cwd })).err, /ENOTDIR.*\[ERR_SDSD_OUTPUT\]\n {2}try: /);
  assert.match((await cli(['issue', ID, '--out', 'no/o'], { cwd })).err, /no does not exist \[ERR_SDSD_OUTPUT\]/);
  assert.match((await cli(['issue', ID, '--out', 'o'], { cwd })).err, /ERR_SDSD_CONTROL/);
});

test('envoy bootstrap asks the running daemon who it is and where it serves', async (t) => {
  const [secret] = STATUS.secrets;
  assert.ok(secret);
  const secrets = [{ ...secret, identity: 'spiffe://example.org/ns/a/sa/b' }];
  const { run } = await setup(t, { status: () => ({ ...STATUS, secrets }) });
  const { out, err } = await run('envoy', 'bootstrap');
  assert.equal(err, '');
  assert.match(out, /prefix: "?spiffe:\/\/example\.org\//);
  assert.match(out, /path: "?\/run\/sds\.sock/);
  const other = await run('envoy', 'bootstrap', '--trust-domain', 'cluster.local', '--socket', '/run/x.sock');
  assert.match(other.out, /prefix: "?spiffe:\/\/cluster\.local\//);
  assert.match(other.out, /path: "?\/run\/x\.sock/);
  assert.match(other.err, /the running daemon is of the trust domain example\.org, and not of cluster\.local/);
});
