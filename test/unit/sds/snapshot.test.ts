/** What streams may be sent while trust anchors and certificates change. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Snapshot, type Subscriber } from '../../../src/sds/snapshot.js';
import type { SecretResult } from '../../../src/secrets/index.js';
import { VirtualClock } from '../../../src/testing/virtual-clock.js';
import { FakeSecretManager } from '../../support/fake-secret-manager.js';

const CALLER = { connectionId: 'c1', nodeId: 'test' };
const ACK_TIMEOUT_MS = 10_000;

/** A stream that holds what it says. */
class FakeSubscriber implements Subscriber {
  readonly changes: string[] = [];
  readonly held = new Map<string, number>();
  changed(name: string): void {
    this.changes.push(name);
  }
  holds(name: string): number | undefined {
    return this.held.get(name);
  }
}

function start() {
  const clock = new VirtualClock();
  const manager = new FakeSecretManager();
  const timeouts: number[] = [];
  const snapshot = new Snapshot({
    manager,
    clock,
    ackTimeoutMs: ACK_TIMEOUT_MS,
    onAckTimeout: (_, waitingFor) => timeouts.push(waitingFor),
  });
  const roots = manager.setRoots('r1');
  manager.setCertificate('default', 'c1');
  const watcher = new FakeSubscriber();
  snapshot.subscribe('ROOTCA', CALLER, watcher);
  watcher.held.set('ROOTCA', roots.version);
  const acknowledge = (version: number): void => {
    watcher.held.set('ROOTCA', version);
    snapshot.acknowledged('ROOTCA', watcher);
  };
  return { clock, manager, snapshot, watcher, timeouts, acknowledge };
}

const serial = (result: SecretResult): string =>
  result.kind === 'secret' && result.secret.kind === 'tls-certificate' ? result.secret.serialNumber : result.kind;

describe('a certificate that requires new trust anchors', () => {
  it('waits until whoever watches them holds that version, and not an older one', () => {
    const { manager, snapshot, acknowledge } = start();
    const interest = snapshot.subscribe('default', CALLER, new FakeSubscriber());
    const second = manager.setRoots('r2');
    const third = manager.setRoots('r3');
    manager.setCertificate('default', 'c2', { name: 'ROOTCA', version: third.version });
    assert.equal(serial(interest.current()), 'c1');
    acknowledge(second.version);
    assert.equal(serial(interest.current()), 'c1', 'the ACK of an older bundle opens nothing');
    acknowledge(third.version);
    assert.equal(serial(interest.current()), 'c2');
  });

  it('does not wait for a watcher that holds a newer version already', () => {
    const { manager, snapshot, acknowledge } = start();
    const interest = snapshot.subscribe('default', CALLER, new FakeSubscriber());
    const second = manager.setRoots('r2');
    const third = manager.setRoots('r3');
    acknowledge(third.version);
    manager.setCertificate('default', 'c2', { name: 'ROOTCA', version: second.version });
    assert.equal(serial(interest.current()), 'c2');
  });

  it('waits no longer than it may, and says for how many', async () => {
    const { clock, manager, snapshot, timeouts } = start();
    const subscriber = new FakeSubscriber();
    const interest = snapshot.subscribe('default', CALLER, subscriber);
    manager.setCertificate('default', 'c2', { name: 'ROOTCA', version: manager.setRoots('r2').version });
    subscriber.changes.length = 0;
    await clock.advance(ACK_TIMEOUT_MS - 1);
    assert.equal(serial(interest.current()), 'c1');
    await clock.advance(1);
    assert.equal(serial(interest.current()), 'c2');
    assert.deepEqual([timeouts, subscriber.changes], [[1], ['default']]);
  });

  it('is not waited for by a client that comes meanwhile for a name that nobody watches: it gets the one before', () => {
    const { manager, snapshot, acknowledge } = start();
    const ref = { name: 'ROOTCA', version: manager.setRoots('r2').version };
    manager.replaceCertificate('default', 'c2', ref);
    const subscriber = new FakeSubscriber();
    const interest = snapshot.subscribe('default', CALLER, subscriber);
    assert.equal(serial(interest.current()), 'c1');
    acknowledge(ref.version);
    assert.equal(serial(interest.current()), 'c2');
    assert.ok(subscriber.changes.includes('default'));
  });

  it('is not given to a single request either, whether or not a stream watches the name', async () => {
    const { manager, snapshot, acknowledge } = start();
    const ref = { name: 'ROOTCA', version: manager.setRoots('r2').version };
    manager.replaceCertificate('default', 'c2', ref);
    assert.equal(serial(await snapshot.fetch('default', CALLER)), 'c1');
    manager.setCertificate('default', 'c3', ref);
    assert.equal(serial(await snapshot.fetch('default', CALLER)), 'pending', 'there is none before it');
    acknowledge(ref.version);
    assert.equal(serial(await snapshot.fetch('default', CALLER)), 'c3');
  });

  it('waits for nobody who has gone', () => {
    const { manager, snapshot, acknowledge } = start();
    const slow = new FakeSubscriber();
    slow.held.set('ROOTCA', 1);
    const lease = snapshot.subscribe('ROOTCA', CALLER, slow);
    const interest = snapshot.subscribe('default', CALLER, new FakeSubscriber());
    const ref = { name: 'ROOTCA', version: manager.setRoots('r2').version };
    manager.setCertificate('default', 'c2', ref);
    acknowledge(ref.version);
    assert.equal(serial(interest.current()), 'c1', 'the slow one has not acknowledged');
    lease.close();
    assert.equal(serial(interest.current()), 'c2');
  });
});
