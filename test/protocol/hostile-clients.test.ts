/** Clients that are broken, slow, greedy or many: each harms itself at the most. */
import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import http2 from 'node:http2';
import { connect } from 'node:net';
import { describe, it } from 'node:test';
import { status } from '@grpc/grpc-js';
import { deltaDiscoveryRequest, discoveryRequest, SECRET_TYPE_URL, sdsMethod } from '../../src/rpc/index.js';
import { HTTP2_GREETING } from '../../src/sockets/index.js';
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

  it('half-open connections by the thousand keep nobody out: the oldest of them make room', async () => {
    await using server = await startTestServer({ maxConnections: 50 });
    const held = Array.from({ length: 200 }, (_, i) => {
      const socket = connect(server.socket);
      socket.on('error', () => undefined);
      socket.write('PRI * HTTP/2.0'.slice(0, i % 10));
      return socket;
    });
    await until('all places are taken', () => server.rpc.connections === 50);
    const check = await witness(server);
    await check();
    for (const socket of held) socket.destroy();
    await until('only the witness is left', () => server.rpc.connections === 1);
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

describe('a connection that breaks the rules of HTTP/2', { timeout: 60_000 }, () => {
  const http2Frame = (
    type: number,
    flags: number,
    stream: number,
    payload: Buffer,
    length = payload.length,
  ): Buffer => {
    const head = Buffer.alloc(9);
    head.writeUIntBE(length, 0, 3);
    head.writeUInt8(type, 3);
    head.writeUInt8(flags, 4);
    head.writeUInt32BE(stream, 5);
    return Buffer.concat([head, payload]);
  };
  /** `:method: POST`, `:scheme: http`, `:path: /`, `:authority: a`, and one long header without indexing. */
  const longHeader = (): Buffer[] => {
    const block = Buffer.concat([
      Buffer.from([0x83, 0x86, 0x84, 0x41, 1, 0x61, 0x00, 1, 0x78, 0x7f, 0xc1, 0xa8, 0x07]),
      Buffer.alloc(120_000, 'x'),
    ]);
    const frames: Buffer[] = [];
    for (let at = 0; at < block.length; at += 16_384) {
      const isLast = at + 16_384 >= block.length;
      frames.push(http2Frame(at === 0 ? 1 : 9, isLast ? 4 : 0, 1, block.subarray(at, at + 16_384)));
    }
    return frames;
  };
  const breaches: readonly [name: string, bytes: Buffer][] = [
    ['a frame longer than any may be', http2Frame(0, 0, 1, Buffer.alloc(0), 100_000)],
    ['headers that cannot be unpacked', http2Frame(1, 5, 1, Buffer.alloc(6, 0xff))],
    ['data on stream 0', http2Frame(0, 0, 0, Buffer.from('x'))],
    ['garbage after the preface', Buffer.alloc(100, 0xaa)],
    ['a header of 120,000 bytes', Buffer.concat(longHeader())],
  ];
  for (const [name, bytes] of breaches) {
    for (const stays of [true, false]) {
      it(`is closed within seconds after ${name}, ${stays ? 'while its peer waits' : 'when its peer has gone'}`, async () => {
        await using server = await startTestServer();
        const check = await witness(server);
        const socket = connect(server.socket);
        socket.on('error', () => undefined).resume();
        // Node has read what is wrong when it says so, or closes the connection.
        const heard = new Promise((resolve) => socket.once('data', resolve).once('close', resolve));
        socket.write(Buffer.concat([HTTP2_GREETING, bytes]));
        await heard;
        if (!stays) socket.destroy();
        await until('it is closed', async () => {
          await server.clock.advance(1_000);
          return server.rpc.connections === 1;
        });
        await check();
        socket.destroy();
      });
    }
  }

  it('is told from one that is only quiet, or busy', async () => {
    await using server = await startTestServer();
    const check = await witness(server);
    for (let second = 0; second < 20; second++) {
      await server.clock.advance(1_000);
      if (second % 5 === 0) await check();
    }
    await check();
    assert.equal(server.rpc.connections, 1);
  });

  it('may be on its way to its end when it is looked at', async () => {
    await using server = await startTestServer();
    const check = await witness(server);
    for (let round = 0; round < 20; round++) {
      const session = rawSession(server);
      const stream = openRaw(session);
      stream.resume();
      stream.write(frame(Buffer.alloc(2 * 1024 * 1024)));
      await until('the connection is there', () => server.rpc.connections === 2);
      session.destroy();
      await server.clock.advance(100);
    }
    await check();
  });

  it('costs others nothing, by the thousand: all are closed, and nothing is left of them', async () => {
    await using server = await startTestServer({ maxConnections: 20_000 });
    const check = await witness(server);
    const before = readdirSync('/proc/self/fd').length;
    const used = server.memory.used;
    const garbage = Buffer.concat([HTTP2_GREETING, Buffer.alloc(100, 0xaa)]);
    let slowest = 0;
    for (let round = 0; round < 20; round++) {
      const closed = Array.from({ length: 100 }, () => {
        const socket = connect(server.socket);
        socket.on('error', () => undefined);
        socket.write(garbage, () => socket.destroy());
        return new Promise((resolve) => socket.once('close', resolve));
      });
      await Promise.all(closed);
      const asked = performance.now();
      await check();
      slowest = Math.max(slowest, performance.now() - asked);
      await server.clock.advance(500);
    }
    await until('all are closed', async () => {
      await server.clock.advance(1_000);
      return server.rpc.connections === 1;
    });
    assert.ok(server.memory.used < used + 10_000, String(server.memory.used));
    await until('no descriptor is left', () => readdirSync('/proc/self/fd').length <= before);
    assert.ok(slowest < 1_000, `the slowest answer took ${slowest} ms`);
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
    second.write(HTTP2_GREETING);
    await new Promise((resolve) => second.once('data', resolve));
    const third = connect(server.socket);
    third.on('error', () => undefined);
    await new Promise((resolve) => third.once('close', resolve));
    await check();
    second.destroy();
  });
});

describe('a client that wants to be remembered', { timeout: 60_000 }, () => {
  it('is known by the first 256 bytes of what it calls itself, in status and log', async () => {
    await using server = await startTestServer();
    const stream = server.connect().stream();
    stream.send({ node: { id: 'n'.repeat(2_000_000) }, resourceNames: ['default', 'missing'] });
    const { nonce } = await stream.next();
    stream.send({ responseNonce: nonce, errorDetail: { code: 13, message: 'no' }, resourceNames: ['default'] });
    await until('the NACK is logged', () => server.lines.length === 1);
    assert.equal(server.sds.streams()[0]?.nodeId, `${'n'.repeat(256)}…`);
    assert.match(server.lines[0] ?? '', /node=n{256}… /);
  });

  it('gets its streams ended when all together take more than they may; what is open goes on, and all is given back', async () => {
    const maxMemory = 16 * 1024 * 1024;
    await using server = await startTestServer({ maxMemory });
    const check = await witness(server);
    const session = rawSession(server);
    const names = (round: number) => Array.from({ length: 500 }, (_, i) => `${round}-${i}-${'x'.repeat(1_900)}`);
    const ends: Promise<string>[] = [];
    for (let round = 0; round < 20; round++) {
      const stream = openRaw(session);
      stream.resume();
      // A status without an answer before it comes with the headers.
      ends.push(
        new Promise((resolve) =>
          stream.once('response', (headers) => {
            if (headers['grpc-message']) resolve(String(headers['grpc-message']));
          }),
        ),
      );
      stream.write(frame(request(names(round))));
    }
    assert.match(await Promise.race(ends), /SDSD_MAX_CLIENT_MEMORY/);
    await until(
      'the others have their names',
      () => server.sds.streams().filter(({ names }) => names.length === 500).length > 3,
    );
    assert.ok(server.memory.used <= maxMemory, String(server.memory.used));
    await check();
    session.destroy();
    await until('one stream left', () => server.sds.streams().length === 1);
    await until('one connection left', () => server.rpc.connections === 1);
    assert.ok(server.memory.used < 100_000, String(server.memory.used));
  });

  it('is ended when it asks for over-long names, again and again, and does not read that they are removed', async () => {
    await using server = await startTestServer();
    const check = await witness(server);
    const session = rawSession(server);
    const stream = openRaw(session, 'DeltaSecrets');
    stream.pause();
    const ask = (round: number): Buffer =>
      deltaDiscoveryRequest.encode({
        node: { id: 'raw' },
        typeUrl: SECRET_TYPE_URL,
        resourceNamesSubscribe: Array.from({ length: 100 }, (_, i) => `${round}-${i}-${'x'.repeat(5_000)}`),
      });
    const used = server.memory.used;
    let most = 0;
    for (let round = 0; round < 50; round++) {
      stream.write(frame(ask(round)));
      most = Math.max(most, server.memory.used);
    }
    await until('the stream is ended', () => server.sds.streams().length === 1);
    assert.ok(most - used < 8_000_000, String(most));
    await check();
    session.destroy();
  });

  it('keeps no more than so much of its messages unfinished, and is the only one to notice', async () => {
    await using server = await startTestServer();
    const check = await witness(server);
    const session = rawSession(server);
    const used = server.memory.used;
    const codes = Array.from({ length: 12 }, () => {
      const stream = openRaw(session);
      stream.write(frame(Buffer.alloc(2_000_000), 0, 4_000_000));
      return new Promise<number | undefined>((resolve) => stream.once('close', () => resolve(stream.rstCode)));
    });
    assert.equal(await Promise.race(codes), http2.constants.NGHTTP2_ENHANCE_YOUR_CALM);
    await check();
    assert.ok(server.memory.used - used < 17_000_000, String(server.memory.used - used));
    session.destroy();
    await until('one stream left', () => server.sds.streams().length === 1);
    await until('all is given back', () => server.memory.used < 200_000);
  });

  it('gets no more single answers at a time than streams', async () => {
    await using server = await startTestServer({ maxStreams: 10 });
    let free = (): void => undefined;
    server.manager.busy = new Promise((resolve) => {
      free = resolve;
    });
    const client = server.connect();
    const answers = Array.from({ length: 12 }, () =>
      client.fetch({ resourceNames: ['default'] }).then(
        () => 'answered',
        (error: { code: number }) => error.code,
      ),
    );
    const early = await Promise.race(answers);
    assert.equal(early, status.RESOURCE_EXHAUSTED);
    free();
    const all = await Promise.all(answers);
    assert.equal(all.filter((answer) => answer === 'answered').length, 10);
    assert.equal(all.filter((answer) => answer === status.RESOURCE_EXHAUSTED).length, 2);
  });

  it('fills no log: lines for each client are limited, and what is left out is counted', async () => {
    await using server = await startTestServer();
    const stream = server.connect().stream();
    for (let round = 0; round < 100; round++) {
      server.manager.setCertificate('default', `c${round}`);
      if (round === 0) stream.send({ resourceNames: ['default'] });
      const { nonce } = await stream.next();
      stream.send({ responseNonce: nonce, errorDetail: { code: 13, message: 'no' }, resourceNames: ['default'] });
    }
    await until('all are rejected', () => server.sds.streams()[0]?.names[0]?.lastNack !== undefined);
    assert.equal(server.lines.length, 20);
    await server.clock.advance(10_000);
    server.manager.setCertificate('default', 'last');
    const { nonce } = await stream.next();
    stream.send({ responseNonce: nonce, errorDetail: { code: 13, message: 'no' }, resourceNames: ['default'] });
    await until('a line again', () => server.lines.length === 21);
    assert.match(server.lines[20] ?? '', /linesLeftOut=80/);
  });
});
