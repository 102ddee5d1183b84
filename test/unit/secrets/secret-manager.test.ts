import assert from 'node:assert/strict';
import { createPrivateKey, X509Certificate } from 'node:crypto';
import { describe, it } from 'node:test';
import { pemBlocks } from '../../../src/pki/index.js';
import {
  type CaClient,
  caIdentitySource,
  type IdentityStore,
  type SecretResult,
  type StoredIdentity,
} from '../../../src/secrets/index.js';
import type { CaFault } from '../../../src/testing/test-ca.js';
import { TestCa } from '../../../src/testing/test-ca.js';
import { VirtualClock } from '../../../src/testing/virtual-clock.js';
import { CALLER, certificateOf, IDENTITY, memoryStore, rootsOf, startManager } from '../../support/manager.js';

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;

describe('generateSecret', () => {
  it('makes a certificate with one CSR, and answers the second request from memory (SM-01)', async () => {
    await using test = await startManager();
    const first = certificateOf(await test.manager.generateSecret('default', CALLER));
    const second = certificateOf(await test.manager.generateSecret('default', CALLER));
    assert.equal(second, first);
    assert.equal(test.ca.calls.length, 1);
    const [leaf] = pemBlocks(first.certificateChain);
    assert.ok(leaf);
    const x509 = new X509Certificate(leaf.der);
    assert.ok(x509.checkPrivateKey(createPrivateKey(first.privateKey)));
    assert.equal(x509.subjectAltName, `URI:${IDENTITY}`);
    assert.equal(first.identity, IDENTITY);
  });

  it('answers ROOTCA with the root, and leaves the root out of the chain', async () => {
    await using test = await startManager();
    const roots = rootsOf(await test.manager.generateSecret('ROOTCA', CALLER));
    assert.equal(roots.trustedCa.toString(), test.ca.root.pem);
    const { certificateChain } = certificateOf(await test.manager.generateSecret('default', CALLER));
    assert.equal(pemBlocks(certificateChain).length, 2);
    assert.ok(!certificateChain.toString().includes(test.ca.root.pem));
  });

  it('sends one CSR for a hundred requests at once (SM-20, R6)', async () => {
    const clock = new VirtualClock();
    const ca = await TestCa.create(clock);
    ca.latency = SECOND;
    await using test = await startManager({ clock, ca });
    const requests = Array.from({ length: 100 }, (_, i) =>
      test.manager.generateSecret(i % 2 ? 'default' : 'ROOTCA', CALLER),
    );
    await clock.advance(SECOND);
    const results = await Promise.all(requests);
    assert.ok(results.every(({ kind }) => kind === 'secret'));
    assert.equal(ca.calls.length, 1);
  });

  it('never asks the CA for a name that it does not know (W9)', async () => {
    await using test = await startManager();
    await test.manager.generateSecret('default', CALLER);
    const names = [
      'foo',
      '',
      'file-cert:deny~deny',
      'file-root:',
      'file-cert:a',
      'kubernetes://x',
      'Default',
      'default ',
      'x'.repeat(5_000),
    ];
    for (const name of names) {
      const result = await test.manager.generateSecret(name, CALLER);
      assert.deepEqual([result.kind, result.kind === 'denied' && result.reason], ['denied', 'unknown'], name);
    }
    assert.equal(test.ca.calls.length, 1);
  });

  it('tells once of a name that is asked for again and again, and counts it', async () => {
    await using test = await startManager();
    for (let i = 0; i < 5; i++) await test.manager.generateSecret('foo', CALLER);
    assert.equal(test.logged.filter((line) => line.includes('not served')).length, 1);
    assert.deepEqual(test.manager.unknownNames(), [{ name: 'foo', count: 5 }]);
  });

  it('keeps and logs little of a name that is huge', async () => {
    await using test = await startManager();
    for (let i = 0; i < 10; i++) await test.manager.generateSecret(`${i}${'x'.repeat(1_000_000)}`, CALLER);
    assert.ok(JSON.stringify(test.manager.unknownNames()).length < 4_000);
  });

  it('says why when there is nothing yet, after the attempt that was under way', async () => {
    const clock = new VirtualClock();
    const ca = await TestCa.create(clock);
    ca.fault = 'down';
    await using test = await startManager({ clock, ca });
    for (const name of ['default', 'ROOTCA']) {
      const result = await test.manager.generateSecret(name, CALLER);
      assert.equal(result.kind, 'pending');
    }
    const result = await test.manager.generateSecret('default', CALLER);
    assert.match(result.kind === 'pending' ? result.why : '', /test CA is down/);
  });
});

describe('renewal', () => {
  it('renews at half the lifetime with nobody subscribed, and keeps the root (SM-02)', async () => {
    await using test = await startManager();
    const first = certificateOf(await test.manager.generateSecret('default', CALLER));
    const roots = rootsOf(await test.manager.generateSecret('ROOTCA', CALLER));
    await test.clock.advance(30 * MINUTE - 1);
    assert.equal(test.ca.calls.length, 1);
    await test.clock.advance(1);
    assert.equal(test.ca.calls.length, 2);
    const second = certificateOf(await test.manager.generateSecret('default', CALLER));
    assert.notEqual(second.serialNumber, first.serialNumber);
    assert.ok(!second.privateKey.equals(first.privateKey), 'a new key for each certificate');
    assert.ok(second.version > first.version);
    assert.equal(rootsOf(await test.manager.generateSecret('ROOTCA', CALLER)), roots);
  });

  it('tells each subscriber once of each renewal, and nobody of an unchanged root', async () => {
    await using test = await startManager();
    const seen: string[] = [];
    for (const name of ['default', 'ROOTCA']) {
      test.manager.subscribe(name, CALLER, (result) => seen.push(`${name} ${result.kind}`));
    }
    await test.clock.advance(0);
    assert.deepEqual(seen.splice(0), ['default pending', 'ROOTCA pending', 'ROOTCA secret', 'default secret']);
    await test.clock.advance(HOUR);
    assert.deepEqual(seen, ['default secret', 'default secret']);
  });

  it('gives a lifetime that the CA cut short its own rhythm', async () => {
    const clock = new VirtualClock();
    const ca = await TestCa.create(clock);
    ca.grantedTtl = 10 * MINUTE;
    await using test = await startManager({ clock, ca, ttl: 24 * HOUR });
    await test.manager.generateSecret('default', CALLER);
    await clock.advance(50 * MINUTE);
    assert.equal(ca.calls.length, 11);
  });

  it('asks once for a ten-year certificate (R4)', async () => {
    await using test = await startManager({ ttl: 3_650 * 24 * HOUR });
    await test.manager.generateSecret('default', CALLER);
    await test.clock.advance(24 * HOUR);
    assert.equal(test.ca.calls.length, 1);
  });

  it('never asks twice within a second, even for certificates of a second', async () => {
    const clock = new VirtualClock();
    const ca = await TestCa.create(clock);
    ca.grantedTtl = SECOND;
    await using test = await startManager({ clock, ca });
    await clock.advance(MINUTE);
    const gaps = ca.calls.slice(1).map(({ at }, i) => at - (ca.calls[i]?.at ?? 0));
    assert.ok(gaps.length > 30 && Math.min(...gaps) >= SECOND, `gaps ${gaps.slice(0, 5)}`);
    assert.ok(test.manager.workloads().every(({ state }) => state.kind !== 'initializing'));
  });
});

const FAULTS: readonly CaFault[] = [
  'down',
  'hang',
  'wrong-key',
  'wrong-san',
  'expired',
  'not-yet-valid',
  'empty-chain',
  'root-only',
  'wrong-order',
  'foreign-root',
];

describe('a CA that fails across a renewal', () => {
  for (const fault of FAULTS) {
    it(`(${fault}) leaves the current certificate in place, is retried, and recovers within 5 s (SDS-06, SM-21, C1)`, async () => {
      await using test = await startManager();
      const results: SecretResult[] = [];
      test.manager.subscribe('default', CALLER, (result) => results.push(result));
      await test.clock.advance(0);
      const before = certificateOf(results.at(-1));
      test.ca.fault = fault;
      // Until a minute before its end.
      await test.clock.advance(59 * MINUTE);
      assert.equal(certificateOf(await test.manager.generateSecret('default', CALLER)), before);
      assert.equal(results.length, 2, 'nothing was announced');
      assert.ok(test.ca.calls.length > 20, `${test.ca.calls.length} attempts`);
      assert.equal(test.logged.filter((line) => line.includes('cannot be renewed')).length, 1);
      test.ca.fault = undefined;
      // An attempt that hangs is over at its deadline.
      await test.clock.advance(fault === 'hang' ? 15 * SECOND : 5 * SECOND);
      assert.notEqual(certificateOf(results.at(-1)).serialNumber, before.serialNumber);
      assert.equal(test.logged.filter((line) => line.includes('issued again')).length, 1);
    });
  }

  it('past its end: the certificate is given to nobody new, and its successor to everybody', async () => {
    await using test = await startManager();
    const results: SecretResult[] = [];
    test.manager.subscribe('default', CALLER, (result) => results.push(result));
    await test.clock.advance(0);
    test.ca.fault = 'down';
    await test.clock.advance(HOUR + SECOND);
    const late = await test.manager.generateSecret('default', CALLER);
    assert.equal(late.kind, 'pending');
    assert.match(late.kind === 'pending' ? late.why : '', /expired.*down/);
    const newcomer: SecretResult[] = [];
    test.manager.subscribe('default', CALLER, (result) => newcomer.push(result));
    assert.deepEqual(
      newcomer.map(({ kind }) => kind),
      ['pending'],
    );
    test.ca.fault = undefined;
    await test.clock.advance(5 * SECOND);
    assert.equal(newcomer.at(-1)?.kind, 'secret');
    assert.equal(results.at(-1), newcomer.at(-1));
  });

  it('for one identity does not hold up another (C2, C6)', async () => {
    const clock = new VirtualClock();
    const ca = await TestCa.create(clock);
    ca.allows = (san) => !san.endsWith('/refused');
    const identities = new Map(['refused', 'served'].map((name) => [name, `spiffe://cluster.local/ns/a/sa/${name}`]));
    await using test = await startManager({ clock, ca, identities });
    await clock.advance(0);
    assert.equal((await test.manager.generateSecret('served', CALLER)).kind, 'secret');
    assert.equal((await test.manager.generateSecret('refused', CALLER)).kind, 'pending');
  });

  it('asks for none twice within a second, also when it had to wait for others', async () => {
    const clock = new VirtualClock();
    const ca = await TestCa.create(clock);
    ca.latency = 4 * SECOND;
    ca.grantedTtl = SECOND;
    const identities = new Map(Array.from({ length: 17 }, (_, i) => [`w${i}`, `spiffe://cluster.local/ns/a/sa/w${i}`]));
    await using test = await startManager({ clock, ca, identities });
    await clock.advance(9 * SECOND);
    ca.latency = 0;
    await clock.advance(20 * SECOND);
    assert.ok(test.manager.workloads().length === 17);
    for (const identity of identities.values()) {
      const times = ca.calls.filter(({ san }) => san === identity).map(({ at }) => at);
      for (const [i, at] of times.slice(1).entries())
        assert.ok(at - (times[i] ?? 0) >= SECOND, `${identity}: ${times}`);
    }
  });

  it('asks for few of many identities at a time (R5)', async () => {
    const clock = new VirtualClock();
    const ca = await TestCa.create(clock);
    ca.latency = 100;
    const identities = new Map(
      Array.from({ length: 100 }, (_, i) => [`w${i}`, `spiffe://cluster.local/ns/a/sa/w${i}`]),
    );
    await using test = await startManager({ clock, ca, identities });
    await clock.advance(2 * SECOND);
    assert.equal(test.manager.workloads().filter(({ state }) => state.kind === 'available').length, 100);
    assert.equal(ca.mostInFlight, 8);
  });
});

describe('many identities while the CA is down', () => {
  const identitiesOf = (count: number): Map<string, string> =>
    new Map(Array.from({ length: count }, (_, i) => [`w${i}`, `spiffe://cluster.local/ns/a/sa/w${i}`]));
  const available = (test: Awaited<ReturnType<typeof startManager>>): number =>
    test.manager.workloads().filter(({ state }) => state.kind === 'available').length;

  it('ask it a few times a second, all together, and have their certificates seconds after it is back', async () => {
    const clock = new VirtualClock();
    const ca = await TestCa.create(clock);
    ca.fault = 'down';
    const count = 300;
    await using test = await startManager({ clock, ca, identities: identitiesOf(count) });
    await clock.advance(MINUTE);
    assert.ok(ca.calls.length <= 60 * 20 + 10, `${ca.calls.length} requests in a minute`);
    assert.ok(ca.calls.length > 100, `${ca.calls.length} requests in a minute`);
    assert.equal(available(test), 0);
    ca.fault = undefined;
    await clock.advance(5 * SECOND);
    assert.equal(available(test), count);
  });

  it('catch up at once when one of them succeeds, although each would still wait for minutes', async () => {
    const clock = new VirtualClock();
    const ca = await TestCa.create(clock);
    const count = 50;
    let draws = 0;
    const random = (): number => (draws++ % 97) / 97;
    await using test = await startManager({ clock, ca, identities: identitiesOf(count), ttl: 24 * HOUR, random });
    await clock.advance(SECOND);
    assert.equal(available(test), count);
    ca.fault = 'down';
    await clock.advance(13 * HOUR);
    const failing = (): number => test.manager.workloads().filter(({ state }) => state.failures > 0).length;
    assert.equal(failing(), count);
    ca.fault = undefined;
    let seconds = 0;
    while (failing() === count && seconds++ < 400) await clock.advance(SECOND);
    assert.ok(failing() < count, 'one of them asks by itself, minutes later at the most');
    await clock.advance(3 * SECOND);
    assert.equal(failing(), 0, 'and then all do');
  });

  it('are not woken by the success of others when they alone are refused', async () => {
    const clock = new VirtualClock();
    const ca = await TestCa.create(clock);
    ca.allows = (san) => !san.endsWith('/w0');
    ca.grantedTtl = 4 * SECOND;
    await using test = await startManager({ clock, ca, identities: identitiesOf(10) });
    await clock.advance(MINUTE);
    const refused = ca.calls.filter(({ san }) => san.endsWith('/w0')).length;
    assert.ok(refused <= 25, `${refused} requests`);
    assert.equal(available(test), 9);
  });

  it('use the key of a failed attempt again, within a bound, and a new one after each success', async () => {
    const keys: string[] = [];
    let fails = true;
    const clock = new VirtualClock();
    const real = await TestCa.create(clock);
    const ca: CaClient = {
      description: 'counting',
      async sign(request, signal) {
        keys.push(request.csr.toString('base64'));
        if (fails) throw new Error('down');
        return real.sign(request, signal);
      },
      roots: async () => undefined,
      close: () => undefined,
    };
    const source = caIdentitySource({
      ca,
      algorithm: { kind: 'ecdsa', curve: 'P-256' },
      encoding: 'pkcs8',
      ttl: HOUR,
    });
    const { signal } = new AbortController();
    for (let i = 0; i < 45; i++) await assert.rejects(source.obtain(IDENTITY, signal));
    assert.equal(new Set(keys).size, 3, '20 attempts for a key');
    fails = false;
    await source.obtain(IDENTITY, signal);
    await source.obtain(IDENTITY, signal);
    assert.equal(keys[45], keys[44]);
    assert.equal(new Set(keys).size, 4);
  });
});

describe('the clock of the host', () => {
  it('is set back hours: a certificate from the future is taken from clients, and a good one comes', async () => {
    await using test = await startManager();
    const results: SecretResult[] = [];
    test.manager.subscribe('default', CALLER, (result) => results.push(result));
    await test.clock.advance(0);
    const future = certificateOf(results.at(-1));
    test.ca.fault = 'down';
    test.clock.jump(-5 * HOUR);
    await test.clock.advance(20 * SECOND);
    const [state] = test.manager.workloads();
    assert.equal(state?.state.kind, 'unavailable');
    const now = await test.manager.generateSecret('default', CALLER);
    assert.match(now.kind === 'pending' ? now.why : now.kind, /not valid yet: the clock of this host was set back/);
    assert.equal(results.at(-1)?.kind, 'pending');
    assert.ok(test.logged.some((line) => line.includes('the clock was set back')));
    await test.ca.newRoot();
    test.ca.fault = undefined;
    await test.clock.advance(5 * SECOND);
    assert.notEqual(certificateOf(results.at(-1)).serialNumber, future.serialNumber);
  });

  it('is set back a little: nothing happens', async () => {
    await using test = await startManager();
    await test.clock.advance(MINUTE);
    test.clock.jump(-30 * SECOND);
    await test.clock.advance(MINUTE);
    assert.equal(test.ca.calls.length, 1);
  });
});

describe('a CA that ends before its certificates', () => {
  it('is asked again before it ends, and told of', async () => {
    const clock = new VirtualClock();
    const ca = await TestCa.create(clock, { lifetime: 10 * MINUTE });
    await using test = await startManager({ clock, ca, ttl: 24 * HOUR });
    await clock.advance(5 * MINUTE - SECOND);
    assert.equal(ca.calls.length, 1);
    await clock.advance(2 * SECOND);
    assert.equal(ca.calls.length, 2);
    assert.ok(
      certificateOf(await test.manager.generateSecret('default', CALLER)).notAfter <= clock.now() + 10 * MINUTE,
    );
    assert.ok(test.logged.some((line) => line.startsWith('warn: a certificate of the CA ends soon')));
  });
});

describe('time', () => {
  it('asks the CA for whoever comes first after the host slept past the end, and gives out nothing expired (R1)', async () => {
    await using test = await startManager();
    const before = certificateOf(await test.manager.generateSecret('default', CALLER));
    test.clock.jump(48 * HOUR);
    const after = certificateOf(await test.manager.generateSecret('default', CALLER));
    assert.notEqual(after.serialNumber, before.serialNumber);
    assert.equal(test.ca.calls.length, 2);
  });

  it('renews by itself after the host slept, as soon as the clock is looked at', async () => {
    await using test = await startManager();
    const seen: SecretResult[] = [];
    test.manager.subscribe('default', CALLER, (result) => seen.push(result));
    await test.clock.advance(0);
    test.clock.jump(48 * HOUR);
    await test.clock.advance(0);
    assert.equal(test.ca.calls.length, 2);
    assert.ok(certificateOf(seen.at(-1)).notAfter > test.clock.now());
  });

  it('keeps serving when the clock is set back, and versions grow all the same', async () => {
    await using test = await startManager();
    await test.clock.advance(48 * HOUR);
    const before = certificateOf(await test.manager.generateSecret('default', CALLER));
    test.clock.jump(-30 * SECOND);
    assert.equal(certificateOf(await test.manager.generateSecret('default', CALLER)), before);
    const [rotated] = await test.manager.rotate('default');
    assert.ok(rotated && rotated.version > before.version);
  });
});

describe('rotate', () => {
  it('gets a new certificate now, whatever the floor', async () => {
    await using test = await startManager();
    const before = certificateOf(await test.manager.generateSecret('default', CALLER));
    for (let i = 0; i < 3; i++) {
      const [rotated] = await test.manager.rotate('default');
      assert.notEqual(rotated?.serialNumber, before.serialNumber);
    }
    assert.equal(test.ca.calls.length, 4);
  });

  it('fails with the reason, and keeps what there is', async () => {
    await using test = await startManager();
    const before = certificateOf(await test.manager.generateSecret('default', CALLER));
    test.ca.fault = 'wrong-san';
    await assert.rejects(test.manager.rotate(), { code: 'ERR_SDSD_CA', message: /of-another/ });
    await assert.rejects(test.manager.rotate('nobody'), { code: 'ERR_SDSD_RESOURCE_NAME' });
    assert.equal(certificateOf(await test.manager.generateSecret('default', CALLER)), before);
  });
});

describe('a root change', () => {
  it('announces old and new roots before the certificate that needs them, which says so (R8)', async () => {
    await using test = await startManager();
    const seen: SecretResult[] = [];
    for (const name of ['default', 'ROOTCA']) test.manager.subscribe(name, CALLER, (result) => seen.push(result));
    await test.clock.advance(0);
    const old = test.ca.root;
    seen.length = 0;
    const next = await test.ca.newRoot();
    await test.clock.advance(30 * MINUTE);
    assert.equal(seen.length, 2);
    const bundle = rootsOf(seen[0]);
    const leaf = certificateOf(seen[1]);
    assert.deepEqual(bundle.fingerprints.toSorted(), [old.fingerprint, next.fingerprint].sort());
    assert.deepEqual(leaf.requires, { name: 'ROOTCA', version: bundle.version });
  });

  it('drops the old root when the last certificate under it, here or elsewhere, has run out', async () => {
    await using test = await startManager();
    await test.manager.generateSecret('default', CALLER);
    const next = await test.ca.newRoot();
    await test.manager.rotate();
    const roots = async () => rootsOf(await test.manager.generateSecret('ROOTCA', CALLER)).fingerprints;
    await test.clock.advance(HOUR - 1);
    assert.equal((await roots()).length, 2);
    await test.clock.advance(2);
    assert.deepEqual(await roots(), [next.fingerprint]);
  });

  it('keeps the overlap over a restart', async () => {
    const clock = new VirtualClock();
    const ca = await TestCa.create(clock);
    const memory = memoryStore();
    {
      await using before = await startManager({ clock, ca, memory });
      await before.manager.generateSecret('default', CALLER);
    }
    const old = ca.root;
    const next = await ca.newRoot();
    await clock.advance(MINUTE);
    await using test = await startManager({ clock, ca, memory });
    await test.manager.generateSecret('default', CALLER);
    const { fingerprints } = rootsOf(await test.manager.generateSecret('ROOTCA', CALLER));
    assert.deepEqual(fingerprints.toSorted(), [old.fingerprint, next.fingerprint].sort());
    await clock.advance(2 * HOUR);
    assert.deepEqual(rootsOf(await test.manager.generateSecret('ROOTCA', CALLER)).fingerprints, [next.fingerprint]);
  });

  it('is stored as soon as that works again, and at the end at the latest', async () => {
    for (const wait of [10 * SECOND, 0]) {
      const memory = memoryStore();
      const test = await startManager({ memory });
      await test.manager.generateSecret('default', CALLER);
      memory.fails = true;
      await test.ca.newRoot();
      await test.manager.rotate();
      assert.equal(test.logged.filter((line) => line.includes('cannot store')).length, 1);
      assert.equal((await memory.load()).anchors.size, 1);
      memory.fails = false;
      await test.clock.advance(wait);
      if (wait > 0) assert.equal((await memory.load()).anchors.size, 2);
      await test.manager.close();
      assert.equal((await memory.load()).anchors.size, 2);
      assert.equal(test.clock.pending, 0);
    }
  });

  it('has its order and its end also over a restart while the CA is down', async () => {
    const clock = new VirtualClock();
    const ca = await TestCa.create(clock);
    const memory = memoryStore();
    let version = 0;
    {
      await using before = await startManager({ clock, ca, memory });
      await before.manager.generateSecret('default', CALLER);
      await ca.newRoot();
      const [leaf] = await before.manager.rotate();
      version = leaf?.requires?.version ?? 0;
      assert.ok(version > 0);
    }
    // The clock was set back meanwhile: versions grow all the same.
    clock.jump(-MINUTE);
    ca.fault = 'down';
    await using test = await startManager({ clock, ca, memory });
    const bundle = rootsOf(await test.manager.generateSecret('ROOTCA', CALLER));
    assert.equal(bundle.fingerprints.length, 2);
    assert.ok(bundle.version > version);
    await clock.advance(5 * HOUR);
    assert.deepEqual(rootsOf(await test.manager.generateSecret('ROOTCA', CALLER)).fingerprints, [ca.root.fingerprint]);
  });

  it('makes certificates after a restart wait for clients that hold an older bundle', async () => {
    const clock = new VirtualClock();
    const ca = await TestCa.create(clock);
    const memory = memoryStore();
    {
      await using before = await startManager({ clock, ca, memory });
      await before.manager.generateSecret('default', CALLER);
      await ca.newRoot();
      await before.manager.rotate();
    }
    await using test = await startManager({ clock, ca, memory });
    const leaf = certificateOf(await test.manager.generateSecret('default', CALLER));
    const bundle = rootsOf(await test.manager.generateSecret('ROOTCA', CALLER));
    assert.deepEqual(leaf.requires, { name: 'ROOTCA', version: bundle.version });
  });

  it('is not taken back by an answer from before it (rule of the newest)', async () => {
    const clock = new VirtualClock();
    const ca = await TestCa.create(clock);
    await using test = await startManager({ clock, ca });
    await test.manager.generateSecret('default', CALLER);
    ca.latency = 5 * SECOND;
    const slow = test.manager.rotate();
    await clock.advance(SECOND);
    const next = await ca.newRoot();
    test.manager.declareRoots([next]);
    await clock.advance(4 * SECOND);
    await slow;
    ca.fault = 'down';
    await clock.advance(2 * HOUR);
    assert.deepEqual(rootsOf(await test.manager.generateSecret('ROOTCA', CALLER)).fingerprints, [next.fingerprint]);
  });

  it('stores rarely: not at every renewal', async () => {
    await using test = await startManager();
    await test.clock.advance(24 * HOUR);
    assert.ok(test.ca.calls.length > 40);
    assert.ok(
      test.store.saves < test.ca.calls.length,
      `${test.store.saves} saves, ${test.ca.calls.length} certificates`,
    );
  });

  it('of a CA whose replicas disagree keeps all their roots', async () => {
    await using test = await startManager();
    await test.manager.generateSecret('default', CALLER);
    const a = test.ca.root;
    const b = await test.ca.newRoot();
    await test.manager.rotate();
    test.manager.declareRoots([a]);
    test.manager.declareRoots([b]);
    test.manager.declareRoots([a]);
    const { fingerprints } = rootsOf(await test.manager.generateSecret('ROOTCA', CALLER));
    assert.equal(fingerprints.length, 2);
  });

  it('never leaves an empty bundle, also when a CA declares no root', async () => {
    await using test = await startManager();
    const before = rootsOf(await test.manager.generateSecret('ROOTCA', CALLER));
    test.manager.declareRoots([]);
    assert.equal(rootsOf(await test.manager.generateSecret('ROOTCA', CALLER)), before);
  });
});

describe('names without a subscriber', () => {
  const identities = new Map(Array.from({ length: 20 }, (_, i) => [`w${i}`, `spiffe://cluster.local/ns/a/sa/w${i}`]));

  it('are kept renewed up to a bound; those pushed out end their timers, and are made anew when asked for', async () => {
    await using test = await startManager({ identities, maxIdleNames: 5 });
    await test.clock.advance(0);
    assert.equal(test.manager.workloads().length, 5);
    assert.equal(test.clock.pending, 6, 'one timer for each that is kept, and one that watches the clock');
    assert.equal((await test.manager.generateSecret('w0', CALLER)).kind, 'secret');
    assert.equal(test.manager.workloads().length, 5);
  });

  it('are not pushed out while anybody holds a lease', async () => {
    await using test = await startManager({ identities, maxIdleNames: 5 });
    const lease = test.manager.subscribe('w0', CALLER, () => undefined);
    for (let round = 0; round < 2; round++) {
      for (const name of identities.keys()) await test.manager.generateSecret(name, CALLER);
    }
    assert.ok(test.manager.workloads().some(({ name, subscribers }) => name === 'w0' && subscribers === 1));
    lease.close();
    lease.close();
    assert.equal(test.manager.workloads().length, 5);
  });

  it('answer whoever waits for one that is pushed out, or for a manager that closes', async () => {
    const clock = new VirtualClock();
    const ca = await TestCa.create(clock);
    await using test = await startManager({ clock, ca, identities, maxIdleNames: 5 });
    await clock.advance(0);
    ca.fault = 'hang';
    const pushedOut = assert.rejects(test.manager.rotate('w0'), { code: 'ERR_SDSD_CA' });
    for (const name of ['w1', 'w2', 'w3', 'w4', 'w5', 'w6']) void test.manager.generateSecret(name, CALLER);
    await pushedOut;
    const closed = assert.rejects(test.manager.rotate(), { code: 'ERR_SDSD_CA' });
    await test.manager.close();
    await closed;
  });

  it('leave no timer behind when the manager closes', async () => {
    const test = await startManager({ identities });
    await test.clock.advance(0);
    await test.manager.close();
    assert.equal(test.clock.pending, 0);
  });
});

describe('a restart', () => {
  /** Keeps certificates in memory, as files would. */
  function memoryIdentities(): IdentityStore {
    const kept = new Map<string, StoredIdentity>();
    return {
      load: async (name) => kept.get(name),
      save: async (name, stored) => void kept.set(name, stored),
    };
  }
  const identities = new Map(['a', 'b'].map((name) => [name, `spiffe://cluster.local/ns/x/sa/${name}`]));

  it('with another CA declares its roots at once, and renews the certificates of the old one soon, with one line', async () => {
    const clock = new VirtualClock();
    const identityStore = memoryIdentities();
    const memory = memoryStore();
    const old = await TestCa.create(clock);
    const first = await startManager({ clock, ca: old, identityStore, memory, identities, ttl: 24 * HOUR });
    await clock.advance(SECOND);
    await first.manager.close();

    const ca = await TestCa.create(clock);
    const roots = async () => [ca.root];
    await using test = await startManager({ clock, ca, identityStore, memory, identities, ttl: 24 * HOUR, roots });
    await clock.advance(0);
    const anchors = test.manager.bundle.anchors.map(({ certificate, current }) => [certificate.fingerprint, current]);
    assert.deepEqual(
      new Map(anchors as [string, boolean][]),
      new Map([
        [ca.root.fingerprint, true],
        [old.root.fingerprint, false],
      ]),
    );
    const before = certificateOf(await test.manager.generateSecret('a', CALLER));
    assert.equal(ca.calls.length, 0, 'the old certificates are served');
    await clock.advance(31 * SECOND);
    assert.equal(ca.calls.length, 2);
    assert.notEqual(certificateOf(await test.manager.generateSecret('a', CALLER)).serialNumber, before.serialNumber);
    assert.equal(test.logged.filter((line) => line.includes('the CA has left')).length, 1);
  });

  it('with the same CA keeps its certificates, and with one that does not tell its roots too', async () => {
    const clock = new VirtualClock();
    const identityStore = memoryIdentities();
    const memory = memoryStore();
    const ca = await TestCa.create(clock);
    const first = await startManager({ clock, ca, identityStore, memory, identities, ttl: 24 * HOUR });
    await clock.advance(SECOND);
    await first.manager.close();
    for (const roots of [async () => [ca.root], async () => undefined, () => Promise.reject(new Error('down'))]) {
      const next = await startManager({ clock, ca, identityStore, memory, identities, ttl: 24 * HOUR, roots });
      await clock.advance(MINUTE);
      assert.equal(ca.calls.length, 2);
      assert.equal(next.manager.roots.length, 1);
      await next.manager.close();
    }
  });

  it('gives only versions that none before it has given, also when the clock was set back', async () => {
    const clock = new VirtualClock();
    const memory = memoryStore();
    let highest = 0;
    for (let round = 0; round < 5; round++) {
      const test = await startManager({ clock, memory });
      await clock.advance(SECOND);
      for (let i = 0; i < 20; i++) {
        const [rotated] = await test.manager.rotate('default');
        assert.ok(rotated && rotated.version > highest, `round ${round}: ${rotated?.version} after ${highest}`);
        highest = rotated.version;
        await clock.advance(20 * SECOND);
      }
      await test.manager.close();
      clock.jump(-24 * HOUR);
    }
  });
});

describe('a certificate that was signed outside of the manager', () => {
  it('does not take a root change back when its answer is late', async () => {
    await using test = await startManager();
    await test.clock.advance(0);
    const old = [...test.manager.roots];
    const since = test.manager.declarations;
    const fresh = await TestCa.create(test.clock);
    test.manager.declareRoots([fresh.root]);
    test.manager.admit(old, test.clock.now() + HOUR, since);
    const current = test.manager.bundle.anchors.filter((anchor) => anchor.current);
    assert.deepEqual(
      current.map(({ certificate }) => certificate.fingerprint),
      [fresh.root.fingerprint],
    );
  });
});
