/** What a client sees on the wire, in both variants and in FetchSecrets. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { type ServiceError, status } from '@grpc/grpc-js';
import { SECRET_TYPE_URL, sdsMethod } from '../../src/rpc/index.js';
import { namesOf, type SdsTestClient, secretsOf } from '../support/sds-client.js';
import { startTestServer } from '../support/sds-server.js';
import { until } from '../support/until.js';

describe('StreamSecrets', () => {
  it('gives certificate, key and trust anchors, and then only what is added (SDS-01)', async () => {
    await using server = await startTestServer();
    const client = server.connect();
    const stream = client.stream();
    stream.send({ resourceNames: ['default'] });
    const first = await stream.next();
    const [secret] = secretsOf(first);
    assert.equal(first.typeUrl, SECRET_TYPE_URL);
    assert.equal(first.controlPlane?.identifier, 'sdsd');
    assert.equal(secret?.name, 'default');
    assert.equal(secret?.tlsCertificate?.certificateChain?.inlineBytes?.toString(), 'chain c1');
    assert.equal(secret?.tlsCertificate?.privateKey?.inlineBytes?.toString(), 'key c1');
    stream.send({ resourceNames: ['default', 'ROOTCA'], responseNonce: first.nonce, versionInfo: first.versionInfo });
    const second = await stream.next();
    assert.deepEqual(namesOf(second), ['ROOTCA']);
    assert.equal(secretsOf(second)[0]?.validationContext?.trustedCa?.inlineBytes?.toString(), 'roots r1');
    assert.notEqual(second.nonce, first.nonce);
    assert.ok(second.versionInfo > first.versionInfo);
    stream.send({ resourceNames: ['default', 'ROOTCA'], responseNonce: second.nonce, versionInfo: second.versionInfo });
    await client.fence();
    assert.equal(stream.waiting.length, 0);
  });

  it('serves two connections side by side, each its own (SDS-04, SDS-11)', async () => {
    await using server = await startTestServer();
    const [a, b] = [server.connect(), server.connect()];
    const [streamA, streamB] = [a.stream(), b.stream()];
    streamA.send({ resourceNames: ['default'] });
    streamB.send({ resourceNames: ['ROOTCA'] });
    assert.deepEqual(namesOf(await streamA.next()), ['default']);
    assert.deepEqual(namesOf(await streamB.next()), ['ROOTCA']);
    await Promise.all([a.fence(), b.fence()]);
    assert.equal(streamA.waiting.length + streamB.waiting.length, 0);
    assert.equal(new Set(server.sds.streams().map(({ connectionId }) => connectionId)).size, 2);
  });

  it('pushes a change to those who watch that name, as the same bytes, and to nobody else (SDS-08)', async () => {
    await using server = await startTestServer();
    const client = server.connect();
    const raw = [1, 2].map(() => client.rawStream(sdsMethod('StreamSecrets')));
    const roots = client.stream();
    roots.send({ resourceNames: ['ROOTCA'] });
    await roots.next();
    const received = raw.map((call) => {
      const messages: Buffer[] = [];
      call.on('data', (bytes: Buffer) => messages.push(bytes));
      call.on('error', () => undefined);
      return messages;
    });
    const { discoveryRequest } = await import('../../src/rpc/index.js');
    for (const call of raw) call.write(discoveryRequest.encode({ node: { id: 'n' }, resourceNames: ['default'] }));
    await until('the first answers', () => received.every(({ length }) => length === 1));
    server.manager.setCertificate('default', 'c2');
    await until('the pushes', () => received.every(({ length }) => length === 2));
    assert.deepEqual(received[0]?.[1], received[1]?.[1]);
    assert.ok(received[0]?.[1]?.includes('chain c2'));
    await client.fence();
    assert.equal(roots.waiting.length, 0);
    for (const call of raw) call.cancel();
  });

  it('answers a client that comes back with an old nonce and version (SDS-09)', async () => {
    await using server = await startTestServer();
    const first = server.connect().stream();
    first.send({ resourceNames: ['default'] });
    const before = await first.next();
    first.cancel();
    const again = server.connect().stream();
    again.send({ resourceNames: ['default'], responseNonce: before.nonce, versionInfo: before.versionInfo });
    assert.deepEqual(namesOf(await again.next()), ['default']);
  });

  it('keeps the stream of a name that cannot be served, answers other names, and sends it once it can (SDS-05)', async () => {
    await using server = await startTestServer();
    const client = server.connect();
    const stream = client.stream();
    stream.send({ resourceNames: ['default', 'file-root:system', 'later'] });
    assert.deepEqual(namesOf(await stream.next()), ['default']);
    server.manager.setCertificate('later', 'c9');
    assert.deepEqual(namesOf(await stream.next()), ['later']);
  });

  it('says nothing when a secret can no longer be renewed, and goes on with the stream (SDS-06)', async () => {
    await using server = await startTestServer();
    const client = server.connect();
    const stream = client.stream();
    stream.send({ resourceNames: ['default'] });
    await stream.next();
    server.manager.set('default', { kind: 'pending', why: 'the CA is down' });
    await client.fence();
    assert.equal(stream.waiting.length, 0);
    server.manager.setCertificate('default', 'c2');
    assert.equal(
      secretsOf(await stream.next())[0]?.tlsCertificate?.certificateChain?.inlineBytes?.toString(),
      'chain c2',
    );
  });

  it('gives up the leases of a stream that ends, however it ends', async () => {
    await using server = await startTestServer();
    for (const leave of ['cancel', 'halfClose'] as const) {
      const stream = server.connect().stream();
      stream.send({ resourceNames: ['default', 'ROOTCA'] });
      await stream.next();
      assert.equal(server.manager.leases(), 2);
      stream[leave]();
      await until('no lease and no stream', () => server.manager.leases() === 0 && server.sds.streams().length === 0);
    }
    const client = server.connect();
    const stream = client.stream();
    stream.send({ resourceNames: ['default'] });
    await stream.next();
    client.close();
    stream.cancel();
    await until('no lease', () => server.manager.leases() === 0);
  });

  it('ends every stream with UNAVAILABLE when the server closes', async () => {
    const server = await startTestServer();
    const stream = server.connect().stream();
    stream.send({ resourceNames: ['default'] });
    await stream.next();
    await server[Symbol.asyncDispose]();
    assert.equal((await stream.ended)?.code, status.UNAVAILABLE);
  });
});

describe('DeltaSecrets', () => {
  it('gives the same secrets, each under its own version (X12)', async () => {
    await using server = await startTestServer();
    const client = server.connect();
    const stream = client.delta();
    stream.send({ resourceNamesSubscribe: ['default', 'ROOTCA'] });
    const first = await stream.next();
    assert.deepEqual(namesOf(first), ['default', 'ROOTCA']);
    assert.deepEqual(
      first.resources.map(({ name }) => name),
      ['default', 'ROOTCA'],
    );
    assert.equal(new Set(first.resources.map(({ version }) => version)).size, 2);
    assert.equal(first.controlPlane?.identifier, 'sdsd');
    const sotw = client.stream();
    sotw.send({ resourceNames: ['default', 'ROOTCA'] });
    assert.deepEqual(secretsOf(await sotw.next()), secretsOf(first));
  });

  it('tells at once that a name is not served, and sends it when it is', async () => {
    await using server = await startTestServer();
    const stream = server.connect().delta();
    stream.send({ resourceNamesSubscribe: ['nobody'] });
    const refusal = await stream.next();
    assert.deepEqual([refusal.removedResources, refusal.resources], [['nobody'], []]);
    server.manager.setCertificate('nobody', 'c3');
    assert.deepEqual(namesOf(await stream.next()), ['nobody']);
  });

  it('says nothing after an unsubscription (SDS-12)', async () => {
    await using server = await startTestServer();
    const client = server.connect();
    const stream = client.delta();
    stream.send({ resourceNamesSubscribe: ['default'] });
    const { nonce } = await stream.next();
    stream.send({ resourceNamesUnsubscribe: ['default'], responseNonce: nonce });
    await until('no lease', () => server.manager.leases() === 0);
    server.manager.setCertificate('default', 'c2');
    await client.fence();
    assert.equal(stream.waiting.length, 0);
  });
});

describe('FetchSecrets', () => {
  const rows: readonly [name: string, names: string[], code: status, message: RegExp][] = [
    ['NOT_FOUND for a name that is not known', ['default', 'nobody'], status.NOT_FOUND, /"nobody"/],
    ['PERMISSION_DENIED for a name that is for others', ['private'], status.PERMISSION_DENIED, /"private".*not yours/],
    ['UNAVAILABLE, saying why, for what is not there yet', ['slow'], status.UNAVAILABLE, /"slow".*the CA is down/],
    ['INVALID_ARGUMENT for no name at all', [], status.INVALID_ARGUMENT, /names no resource/],
  ];
  for (const [name, resourceNames, code, message] of rows) {
    it(`answers ${name} (SDS-05)`, async () => {
      await using server = await startTestServer();
      server.manager.set('slow', { kind: 'pending', why: 'the CA is down' });
      server.manager.set('private', { kind: 'denied', reason: 'forbidden', why: 'not yours' });
      await assert.rejects(server.connect().fetch({ resourceNames }), (error: ServiceError) => {
        assert.equal(error.code, code);
        assert.match(error.details, message);
        return true;
      });
    });
  }

  it('answers with every name that was asked for (SDS-17)', async () => {
    await using server = await startTestServer();
    const response = await server.connect().fetch({ resourceNames: ['default', 'ROOTCA'] });
    assert.deepEqual(namesOf(response), ['default', 'ROOTCA']);
    assert.notEqual(response.versionInfo, '');
  });

  it('wants a node, and the type URL of secrets or none', async () => {
    await using server = await startTestServer();
    const client = server.connect();
    await assert.rejects(client.fetch({ node: null, resourceNames: ['default'] }), /missing node information/);
    await assert.rejects(client.fetch({ typeUrl: 'x', resourceNames: ['default'] }), { code: status.INVALID_ARGUMENT });
    assert.deepEqual(namesOf(await client.fetch({ typeUrl: '', resourceNames: ['default'] })), ['default']);
  });
});

describe('a request that is itself wrong', () => {
  for (const method of ['StreamSecrets', 'DeltaSecrets'] as const) {
    it(`ends its ${method} stream with INVALID_ARGUMENT, and no other (SDS-18)`, async () => {
      await using server = await startTestServer();
      const client = server.connect();
      const healthy = client.stream();
      healthy.send({ resourceNames: ['default'] });
      await healthy.next();
      const open = () => (method === 'StreamSecrets' ? client.stream() : client.delta());
      for (const [request, text] of [
        [{ node: null }, /^missing node information: .*node\.id/],
        [{ typeUrl: 'type.googleapis.com/envoy.config.cluster.v3.Cluster' }, /type URL/],
      ] as const) {
        const stream = open();
        stream.send(request);
        const end = await stream.ended;
        assert.equal(end?.code, status.INVALID_ARGUMENT);
        assert.match(end?.details ?? '', text);
      }
      const garbage = client.rawStream(sdsMethod(method));
      const ended = new Promise<ServiceError>((resolve) => garbage.on('error', resolve));
      garbage.on('data', () => undefined);
      garbage.write(Buffer.from([0x0a, 0xff, 0xff]));
      assert.equal((await ended).code, status.INVALID_ARGUMENT);
      server.manager.setCertificate('default', 'c2');
      assert.deepEqual(namesOf(await healthy.next()), ['default']);
      assert.deepEqual(server.faults, []);
    });
  }
});

describe('an Envoy that rejects a secret', () => {
  const answer = (stream: ReturnType<SdsTestClient['delta']>, nonce: string, error?: string) =>
    stream.send({ responseNonce: nonce, ...(error !== undefined && { errorDetail: { code: 13, message: error } }) });

  async function subscribed(client: SdsTestClient) {
    const [cert, roots] = [client.delta(), client.delta()];
    cert.send({ resourceNamesSubscribe: ['default'] });
    const first = await cert.next();
    roots.send({ resourceNamesSubscribe: ['ROOTCA'] });
    return { cert, roots, firstCert: first.nonce, firstRoots: (await roots.next()).nonce };
  }

  it('hears no more of it while nothing changes, whatever else it accepts (X1)', async () => {
    await using server = await startTestServer();
    const client = server.connect();
    const { cert, roots, firstCert, firstRoots } = await subscribed(client);
    answer(cert, firstCert, 'bad key');
    answer(roots, firstRoots);
    await client.fence();
    assert.equal(cert.waiting.length + roots.waiting.length, 0);
  });

  it('gets the partner anew once the repaired one is accepted: the same content in other bytes', async () => {
    await using server = await startTestServer();
    const client = server.connect();
    const { cert, roots, firstCert, firstRoots } = await subscribed(client);
    answer(cert, firstCert, 'bad key');
    answer(roots, firstRoots, "the certificate's fault");
    await client.fence();
    server.manager.setCertificate('default', 'repaired');
    answer(cert, (await cert.next()).nonce);
    const again = await roots.next();
    assert.equal(secretsOf(again)[0]?.validationContext?.trustedCa?.inlineBytes?.toString(), 'roots r1\n');
    answer(roots, again.nonce);
    await client.fence();
    assert.equal(cert.waiting.length + roots.waiting.length, 0);
  });

  it('gets it anew also if it took the bad partner unseen, as one that starts does', async () => {
    await using server = await startTestServer();
    const [client, other] = [server.connect(), server.connect()];
    const { cert, roots, firstCert, firstRoots } = await subscribed(client);
    const bystander = await subscribed(other);
    answer(cert, firstCert);
    answer(roots, firstRoots, "the certificate's fault");
    await client.fence();
    assert.equal(roots.waiting.length, 0);
    server.manager.setCertificate('default', 'repaired');
    answer(cert, (await cert.next()).nonce);
    assert.equal(secretsOf(await roots.next())[0]?.validationContext?.trustedCa?.inlineBytes?.toString(), 'roots r1\n');
    await Promise.all([client.fence(), other.fence()]);
    assert.equal(bystander.roots.waiting.length, 0, 'to that client only');
  });
});

describe('a secret that requires another', () => {
  it('is held until every subscriber has acknowledged what it requires; meanwhile new streams get the old one', async () => {
    await using server = await startTestServer();
    const client = server.connect();
    const roots = client.stream();
    roots.send({ resourceNames: ['ROOTCA'] });
    const r1 = await roots.next();
    roots.send({ resourceNames: ['ROOTCA'], responseNonce: r1.nonce, versionInfo: r1.versionInfo });
    const leaf = client.stream();
    leaf.send({ resourceNames: ['default'] });
    await leaf.next();
    await client.fence();

    const bundle = server.manager.setRoots('r1+r2');
    server.manager.setCertificate('default', 'under r2', { name: 'ROOTCA', version: bundle.version });
    const r2 = await roots.next();
    await client.fence();
    assert.equal(leaf.waiting.length, 0);
    const newcomer = client.stream();
    newcomer.send({ resourceNames: ['default'] });
    assert.equal(secretsOf(await newcomer.next())[0]?.tlsCertificate?.privateKey?.inlineBytes?.toString(), 'key c1');
    const fetched = await client.fetch({ resourceNames: ['default'] });
    assert.equal(secretsOf(fetched)[0]?.tlsCertificate?.privateKey?.inlineBytes?.toString(), 'key c1');

    roots.send({ resourceNames: ['ROOTCA'], responseNonce: r2.nonce, versionInfo: r2.versionInfo });
    for (const stream of [leaf, newcomer]) {
      const [secret] = secretsOf(await stream.next());
      assert.equal(secret?.tlsCertificate?.certificateChain?.inlineBytes?.toString(), 'chain under r2');
    }
  });

  it('is sent while the one before is still valid, and an expired one to nobody', async () => {
    await using server = await startTestServer();
    const client = server.connect();
    const roots = client.stream();
    roots.send({ resourceNames: ['ROOTCA'] });
    await roots.next();
    const until = server.clock.now() + 5_000;
    server.manager.setCertificate('default', 'short', undefined, until);
    const leaf = client.stream();
    leaf.send({ resourceNames: ['default'] });
    await leaf.next();
    const bundle = server.manager.setRoots('r1+r2');
    server.manager.setCertificate('default', 'under r2', { name: 'ROOTCA', version: bundle.version });
    await client.fence();
    assert.equal(leaf.waiting.length, 0);
    server.clock.jump(5_000);
    const late = client.stream();
    late.send({ resourceNames: ['default'] });
    await client.fence();
    assert.equal(late.waiting.length, 0);
    await server.clock.advance(0);
    for (const stream of [leaf, late]) {
      const [secret] = secretsOf(await stream.next());
      assert.equal(secret?.tlsCertificate?.certificateChain?.inlineBytes?.toString(), 'chain under r2');
    }
  });

  const ends: readonly [
    name: string,
    act: (server: Awaited<ReturnType<typeof startTestServer>>, leave: () => void) => Promise<void> | void,
  ][] = [
    ['when the last that lags has left', (_, leave) => leave()],
    ['when the wait is over', (server) => server.clock.advance(10_000)],
  ];
  for (const [name, act] of ends) {
    it(`is sent ${name}`, async () => {
      await using server = await startTestServer();
      const client = server.connect();
      const roots = client.delta();
      roots.send({ resourceNamesSubscribe: ['ROOTCA'] });
      await roots.next();
      const leaf = client.delta();
      leaf.send({ resourceNamesSubscribe: ['default'] });
      await leaf.next();
      const bundle = server.manager.setRoots('r1+r2');
      server.manager.setCertificate('default', 'under r2', { name: 'ROOTCA', version: bundle.version });
      await roots.next();
      await client.fence();
      assert.equal(leaf.waiting.length, 0);
      await act(server, () => roots.cancel());
      assert.deepEqual(namesOf(await leaf.next()), ['default']);
    });
  }
});
