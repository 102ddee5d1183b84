import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Client } from '../../../src/sds/client.js';
import type { SdsStream } from '../../../src/sds/stream.js';
import type { Secret } from '../../../src/secrets/index.js';

/** A stream as far as its client sees it. */
class FakeStream {
  rejects = true;
  readonly refreshed: string[] = [];
  refreshPartners(kind: Secret['kind'], onlyRejected: boolean): void {
    this.refreshed.push(`${kind}${onlyRejected ? ', only rejected' : ''}`);
  }
}

const certificate = (version: number): Secret => ({ kind: 'tls-certificate', version }) as Secret;

function clientWith(count: number): { client: Client; streams: (FakeStream & SdsStream)[] } {
  const client = new Client();
  // The client calls nothing else of a stream.
  const streams = Array.from({ length: count }, () => new FakeStream() as FakeStream & SdsStream);
  for (const stream of streams) client.streams.add(stream);
  return { client, streams };
}

describe('a client', () => {
  it('looks again at what it rejected before a certificate came, and only there', () => {
    const { client, streams } = clientWith(3);
    const [early, late] = streams;
    assert.ok(early && late);
    client.sent(10);
    client.rejected(early);
    client.sent(20);
    client.rejected(late);
    client.accepted(certificate(15), false);
    assert.deepEqual(
      streams.map(({ refreshed }) => refreshed),
      [['tls-certificate, only rejected'], [], []],
    );
  });

  it('looks again everywhere when a rejected secret was repaired', () => {
    const { client, streams } = clientWith(2);
    client.accepted(certificate(15), true);
    assert.deepEqual(
      streams.map(({ refreshed }) => refreshed),
      [['tls-certificate'], ['tls-certificate']],
    );
  });

  it('forgets a rejection when it is repaired or its stream is over', () => {
    const { client, streams } = clientWith(2);
    const [repaired, closed] = streams;
    assert.ok(repaired && closed);
    client.rejected(repaired);
    client.rejected(closed);
    client.reconsider(repaired);
    assert.equal(client.rejecting, 2, 'still rejecting');
    repaired.rejects = false;
    client.reconsider(repaired);
    client.remove(closed);
    assert.equal(client.rejecting, 0);
  });
});
