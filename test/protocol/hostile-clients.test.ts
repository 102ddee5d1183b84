/** Clients that are broken, slow, greedy or many: each harms itself at the most. */
import assert from 'node:assert/strict';
import http2 from 'node:http2';
import { connect } from 'node:net';
import { describe, it } from 'node:test';
import { status } from '@grpc/grpc-js';
import { discoveryRequest, SECRET_TYPE_URL, sdsMethod } from '../../src/rpc/index.js';
import { namesOf, type SdsTestClient } from '../support/sds-client.js';
import { startTestServer, type TestServer } from '../support/sds-server.js';
import { until } from '../support/until.js';

const [nodeMajor = 0] = process.versions.node.split('.').map(Number);

/** A stream that must not notice anything: returns a check that it still gets what changes. */
async function witness(server: TestServer): Promise<() => Promise<void>> {
  const stream = server.connect().stream();
  stream.send({ resourceNames: ['default'] });
  await stream.next();
  let round = 0;
  return async () => {
    server.manager.setCertificate('default', `for the witness ${round++}`);
    assert.deepEqual(namesOf(await stream.next()), ['default']);
    assert.equal(stream.waiting.length, 0);
  };
}

/** A raw HTTP/2 connection to the server. */
function rawSession(server: TestServer): http2.ClientHttp2Session {
  // Node bounds what a client may hold, at less than ten thousand streams.
  const session = http2.connect('http://localhost', {
    createConnection: () => connect(server.socket),
    maxSessionMemory: 1_000,
  });
  session.on('error', () => undefined);
  return session;
}

function openRaw(session: http2.ClientHttp2Session, method: 'StreamSecrets' | 'DeltaSecrets' = 'StreamSecrets') {
  const stream = session.request({
    ':method': 'POST',
    ':path': sdsMethod(method),
    'content-type': 'application/grpc',
    te: 'trailers',
  });
  stream.on('error', () => undefined);
  return stream;
}

function frame(message: Buffer, flag = 0, length = message.length): Buffer {
  const head = Buffer.alloc(5);
  head.writeUInt8(flag, 0);
  head.writeUInt32BE(length, 1);
  return Buffer.concat([head, message]);
}

/** Calls back for each gRPC message, however it is cut into chunks. */
function onMessage(stream: http2.ClientHttp2Stream, callback: () => void): void {
  let rest = Buffer.alloc(0);
  stream.on('data', (chunk: Buffer) => {
    rest = Buffer.concat([rest, chunk]);
    while (rest.length >= 5 && rest.length >= 5 + rest.readUInt32BE(1)) {
      rest = rest.subarray(5 + rest.readUInt32BE(1));
      callback();
    }
  });
}

const request = (names: string[]): Buffer =>
  discoveryRequest.encode({ node: { id: 'raw' }, typeUrl: SECRET_TYPE_URL, resourceNames: names });

describe('many clients', () => {
  const shapes: readonly [connections: number, each: number][] = [
    [1, 10_000],
    [1_000, 10],
  ];
  for (const [connections, each] of shapes) {
    it(`${connections * each} streams on ${connections} connections get their secret, and each change once`, async () => {
      await using server = await startTestServer();
      const sessions = Array.from({ length: connections }, () => rawSession(server));
      const counts: number[] = [];
      const body = frame(request(['default']));
      for (const session of sessions) {
        for (let i = 0; i < each; i++) {
          const stream = openRaw(session);
          const index = counts.push(0) - 1;
          onMessage(stream, () => {
            counts[index] = (counts[index] ?? 0) + 1;
          });
          stream.write(body);
        }
      }
      await until('the first secret everywhere', () => counts.every((count) => count === 1), 60_000);
      server.manager.setCertificate('default', 'c2');
      await until('the change everywhere', () => counts.every((count) => count === 2), 60_000);
      assert.equal(server.sds.streams().length, connections * each);
      for (const session of sessions) session.destroy();
      await until('no stream left', () => server.sds.streams().length === 0 && server.manager.leases() === 0, 60_000);
      assert.deepEqual(server.faults, []);
    });
  }
});

describe('a client that does not read', () => {
  it('costs one response for each stream, gets the newest when it reads again, and nobody waits for it', async () => {
    await using server = await startTestServer();
    const other = server.connect().stream();
    other.send({ resourceNames: ['default'] });
    await other.next();
    const session = rawSession(server);
    const stream = openRaw(session);
    stream.pause();
    // Large enough to fill the flow-control window of one stream at once.
    const big = (round: number) => `${round} ${'x'.repeat(100_000)}`;
    stream.write(frame(request(['default'])));
    await until('subscribed', () => server.manager.leases('default') === 2);
    for (let round = 0; round < 50; round++) server.manager.setCertificate('default', big(round));
    server.manager.setCertificate('default', 'the newest');
    // The one that reads has long had it.
    await until('the newest for the other', () =>
      other.waiting.some((response) =>
        Buffer.concat(response.resources.map(({ value }) => value)).includes('the newest'),
      ),
    );
    const chunks: Buffer[] = [];
    stream.on('data', (chunk: Buffer) => chunks.push(chunk));
    stream.resume();
    await until('the newest', () => Buffer.concat(chunks).includes(Buffer.from('chain the newest')));
    const received =
      Buffer.concat(chunks)
        .toString('latin1')
        .match(/chain \d+ x/g) ?? [];
    assert.ok(received.length <= 3, `${received.length} of 50 came, the rest were overtaken`);
    session.destroy();
  });
});

describe('a client that dies', () => {
  it('in the middle of a push harms nobody: 500 of them, half killed while the push goes out (L1)', async () => {
    await using server = await startTestServer();
    const check = await witness(server);
    const sessions = Array.from({ length: 500 }, () => rawSession(server));
    let received = 0;
    for (const session of sessions) {
      const stream = openRaw(session);
      onMessage(stream, () => {
        received += 1;
      });
      stream.write(frame(request(['default'])));
    }
    await until('all subscribed', () => received === 500);
    for (const [index, session] of sessions.entries()) if (index % 2) session.destroy();
    await check();
    await until('the push to those alive', () => received === 750);
    for (const session of sessions) session.destroy();
    await until('none left', () => server.sds.streams().length === 1);
    assert.deepEqual(server.faults, []);
  });

  it(`can cancel thousands of streams beside one that lives${nodeMajor >= 24 ? '' : ' (hundreds, before Node 24)'}`, async () => {
    await using server = await startTestServer();
    const session = rawSession(server);
    const alive = openRaw(session);
    let pushes = 0;
    onMessage(alive, () => {
      pushes += 1;
    });
    alive.write(frame(request(['default'])));
    await until('the first secret', () => pushes === 1);
    const body = frame(request(['default']));
    const total = nodeMajor >= 24 ? 5_000 : 900;
    for (let done = 0; done < total; done += 100) {
      const streams = Array.from({ length: 100 }, () => openRaw(session));
      for (const stream of streams) stream.write(body);
      await Promise.all(streams.map((stream) => new Promise((resolve) => stream.once('data', resolve))));
      for (const stream of streams) stream.close(http2.constants.NGHTTP2_CANCEL);
    }
    await until('the cancelled ones gone', () => server.sds.streams().length === 1);
    server.manager.setCertificate('default', 'c2');
    await until('the push', () => pushes === 2);
    session.destroy();
  });
});

describe('nonsense', () => {
  const odd: readonly [name: string, bytes: Buffer][] = [
    ['garbage in a message', frame(Buffer.from([0x0a, 0xff, 0xff, 0xff]))],
    ['a message that announces more than may come', frame(Buffer.alloc(10), 0, 0xffff_ffff)],
    ['a message over the limit', frame(Buffer.alloc(5 * 1024 * 1024))],
    ['a compressed message without an encoding', frame(request(['default']), 1)],
    ['a message of length 0', frame(Buffer.alloc(0))],
    ['wire types that do not fit', frame(Buffer.from([0x18, 0x01, 0x20, 0x01, 0x12, 0x01, 0x00]))],
    ['an HTTP/1 request where a message belongs', Buffer.from('GET / HTTP/1.1\r\nhost: x\r\n\r\n')],
  ];
  for (const [name, bytes] of odd) {
    it(`${name} ends or leaves open its own stream, and no other`, async () => {
      await using server = await startTestServer();
      const check = await witness(server);
      const session = rawSession(server);
      const stream = openRaw(session);
      stream.on('data', () => undefined);
      stream.write(bytes);
      stream.end();
      await new Promise((resolve) => stream.once('close', resolve));
      await check();
      assert.deepEqual(server.faults, []);
      session.destroy();
    });
  }

  it('bytes that are no HTTP/2 end their connection, and no other', async () => {
    await using server = await startTestServer();
    const check = await witness(server);
    for (const bytes of [
      Buffer.from('GET / HTTP/1.1\r\n\r\n'),
      Buffer.alloc(1_000, 0xff),
      Buffer.from('PRI * HTTP/2.0\r\n'),
    ]) {
      const socket = connect(server.socket);
      socket.on('error', () => undefined);
      socket.on('data', () => undefined);
      socket.end(bytes);
      await new Promise((resolve) => socket.once('close', resolve));
    }
    await check();
  });

  it('silence, or half a greeting, ends its connection after a while, and no other', async () => {
    await using server = await startTestServer({ maxConnections: 5 });
    const check = await witness(server);
    const slow = ['', 'P', 'PRI * HTTP/2.0\r\n'].map((beginning) => {
      const socket = connect(server.socket);
      socket.write(beginning);
      return new Promise<void>((resolve) => {
        socket.on('error', () => undefined);
        socket.on('close', () => resolve());
        socket.resume();
      });
    });
    await until('four connections', () => server.rpc.connections === 4);
    await server.clock.advance(9_999);
    assert.equal(server.rpc.connections, 4);
    await server.clock.advance(1);
    await Promise.all(slow);
    assert.equal(server.rpc.connections, 1);
    await check();
  });

  it('names of every shape are not served, and the stream goes on', async () => {
    await using server = await startTestServer();
    const client = server.connect();
    const stream = client.stream();
    const names = [
      '',
      ' ',
      '\0',
      '../../etc/passwd',
      '%00',
      '🦊',
      'a'.repeat(2_048),
      'a'.repeat(100_000),
      '__proto__',
      'constructor',
    ];
    stream.send({ resourceNames: [...names, 'default'] });
    assert.deepEqual(namesOf(await stream.next()), ['default']);
  });

  it('a raw name in invalid UTF-8 is not served, and the stream goes on', async () => {
    await using server = await startTestServer();
    const session = rawSession(server);
    const stream = openRaw(session);
    const chunks: Buffer[] = [];
    stream.on('data', (chunk: Buffer) => chunks.push(chunk));
    const invalid = Buffer.concat([Buffer.from([0x1a, 2, 0xff, 0xfe]), request(['default'])]);
    stream.write(frame(invalid));
    await until('the secret', () => Buffer.concat(chunks).includes('chain c1'));
    session.destroy();
  });
});

describe('a greedy client', () => {
  const opens = (client: SdsTestClient) => client.stream();

  it('gets thousands of names on one stream, and no more than the limit', async () => {
    await using server = await startTestServer({ maxNamesPerStream: 2_000 });
    const names = Array.from({ length: 2_000 }, (_, i) => `n${i}`);
    for (const name of names) server.manager.setCertificate(name, name);
    const client = server.connect();
    const stream = opens(client);
    stream.send({ resourceNames: names });
    assert.equal((await stream.next()).resources.length, 2_000);
    const greedy = opens(client);
    greedy.send({ resourceNames: [...names, 'one more'] });
    const end = await greedy.ended;
    assert.equal(end?.code, status.RESOURCE_EXHAUSTED);
    assert.match(end?.details ?? '', /2000 names/);
    await until('its leases are gone', () => server.manager.leases() === 2_000);
  });

  it('gets no more streams than the limit; those that are open go on', async () => {
    await using server = await startTestServer({ maxStreams: 3 });
    const client = server.connect();
    const streams = Array.from({ length: 3 }, () => opens(client));
    for (const stream of streams) {
      stream.send({ resourceNames: ['default'] });
      await stream.next();
    }
    const refused = opens(client);
    assert.equal((await refused.ended)?.code, status.RESOURCE_EXHAUSTED);
    streams[0]?.cancel();
    await until('room again', () => server.sds.streams().length === 2);
    const taken = opens(client);
    taken.send({ resourceNames: ['default'] });
    assert.deepEqual(namesOf(await taken.next()), ['default']);
  });

  it('gets no more connections than the limit; those that are open go on', async () => {
    await using server = await startTestServer({ maxConnections: 2 });
    const check = await witness(server);
    const second = connect(server.socket);
    await until('two connections', () => server.rpc.connections === 2);
    const third = connect(server.socket);
    third.on('error', () => undefined);
    await new Promise((resolve) => third.once('close', resolve));
    await check();
    second.destroy();
  });
});
