import assert from 'node:assert/strict';
import { createPrivateKey } from 'node:crypto';
import { chmodSync, writeFileSync } from 'node:fs';
import { createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { status } from '@grpc/grpc-js';
import { socketFault } from '../../../src/cli/probe-socket.js';
import { runCli } from '../../../src/cli/program.js';
import type { Clock } from '../../../src/clock.js';
import { systemClock } from '../../../src/clock.js';
import { encodePrivateKey } from '../../../src/pki/index.js';
import {
  type DeltaDiscoveryRequest,
  type DiscoveryRequest,
  deltaDiscoveryResponse,
  discoveryResponse,
  SECRET_TYPE_URL,
  type SecretMessage,
  secretMessage,
} from '../../../src/rpc/descriptors.js';
import { cli, fakeIo, workDirectory } from './fake-io.js';
import { type FakeSds, fakeSdsServer } from './fake-sds-server.js';
import { NOW, testCa } from './test-ca.js';

const ID = 'spiffe://cluster.local/ns/default/sa/default';
const ca = await testCa();
const leaf = await ca.leaf(ID);
const other = await ca.leaf(ID);

/** Real timers, with the wall clock at {@link NOW}. */
const clock: Clock = {
  now: () => NOW,
  at: (time, callback) => systemClock.at(systemClock.now() + (time - NOW), callback),
  every: systemClock.every,
};

function certificate(name = 'default', pair = leaf): Partial<SecretMessage> {
  return {
    name,
    tlsCertificate: {
      certificateChain: { inlineBytes: Buffer.from(pair.certificate.pem) },
      privateKey: { inlineBytes: leaf.keyPem },
    },
  };
}

function roots(name = 'ROOTCA'): Partial<SecretMessage> {
  return { name, validationContext: { trustedCa: { inlineBytes: Buffer.from(ca.root.pem) } } };
}

function any(message: Partial<SecretMessage>) {
  return { type_url: SECRET_TYPE_URL, value: secretMessage.encode(message) };
}

function sotw(...messages: Partial<SecretMessage>[]): Buffer {
  return discoveryResponse.encode({
    versionInfo: '7',
    typeUrl: SECRET_TYPE_URL,
    nonce: 'n7',
    resources: messages.map(any),
  });
}

async function get(t: TestContext, server: FakeSds, ...args: string[]) {
  const socket = await fakeSdsServer(t, server);
  return cli(['get', ...args, '--socket', socket], { clock });
}

const answering = (answer: Buffer): FakeSds => ({ stream: (_request, call) => void call.write(answer) });

test('shows a certificate as a person reads it, and never its key', async (t) => {
  const { code, out, err } = await get(t, answering(sotw(certificate())), 'default');
  assert.equal(err, '');
  assert.equal(code, 0);
  for (const line of [
    /^default, version 7: certificate and key$/m,
    /^ {2}identity +spiffe:\/\/cluster\.local\/ns\/default\/sa\/default$/m,
    /^ {2}subject +empty$/m,
    /^ {2}issuer +CN=test root$/m,
    new RegExp(`^ {2}serial +${leaf.certificate.serialNumber}$`, 'm'),
    /^ {2}not before +2029-12-31T23:00:00Z$/m,
    /^ {2}not after +2030-01-01T23:59:00Z \(23h 59m left\)$/m,
    /^ {2}key +ECDSA P-256$/m,
    new RegExp(`^ {2}SHA-256 +${leaf.certificate.fingerprint}$`, 'm'),
    /^ {2}private key matches the certificate/m,
    /^ {2}chain +the certificate alone$/m,
  ]) {
    assert.match(out, line);
  }
  assert.doesNotMatch(out, /PRIVATE KEY/);
});

test('lists roots with the time that they have left', async (t) => {
  const { code, out } = await get(t, answering(sotw(roots())), 'ROOTCA');
  assert.equal(code, 0);
  assert.match(out, /^ROOTCA, version 7: one root\n {2}subject +CN=test root\n/);
  assert.match(out, /41d 16h left/);
});

test('shows that a key does not belong to its certificate', async (t) => {
  const { out } = await get(t, answering(sotw(certificate('default', other))), 'default');
  assert.match(out, /private key DOES NOT MATCH/);
});

test('prints PEM that other programs read, with the key only when asked for', async (t) => {
  const server = answering(sotw(certificate()));
  assert.equal((await get(t, server, 'default', '-o', 'pem')).out, leaf.certificate.pem);
  const { out } = await get(t, server, 'default', '-o', 'pem', '--with-key');
  assert.equal(out, leaf.certificate.pem + leaf.keyPem.toString());
  assert.ok(leaf.certificate.x509.checkPrivateKey(createPrivateKey(out)));
});

test('prints JSON, with the key only when asked for', async (t) => {
  const server = answering(sotw(certificate()));
  const plain = JSON.parse((await get(t, server, 'default', '-o', 'json')).out);
  assert.equal(plain.kind, 'tls-certificate');
  assert.equal(plain.keyMatches, true);
  assert.deepEqual(plain.certificates[0].uriSans, [ID]);
  assert.equal(plain.certificateChain, leaf.certificate.pem);
  assert.ok(!('privateKey' in plain));
  const full = JSON.parse((await get(t, server, 'default', '-o', 'json', '--with-key')).out);
  assert.equal(full.privateKey, leaf.keyPem.toString());
});

test('asks as Envoy does: a node, the type and the one name', async (t) => {
  const requests: DiscoveryRequest[] = [];
  await get(
    t,
    {
      stream: (request, call) => {
        requests.push(request);
        call.write(sotw(certificate()));
      },
    },
    'default',
  );
  const [request] = requests;
  assert.match(request?.node?.id ?? '', /^sdsd-get-/);
  assert.deepEqual(request?.resourceNames, ['default']);
  assert.equal(request?.typeUrl, SECRET_TYPE_URL);
  assert.equal(request?.responseNonce, '');
});

test('asks with the incremental variant', async (t) => {
  const requests: DeltaDiscoveryRequest[] = [];
  const answer = deltaDiscoveryResponse.encode({
    typeUrl: SECRET_TYPE_URL,
    nonce: 'n',
    resources: [{ name: 'default', version: '9', resource: any(certificate()) }],
  });
  const { out } = await get(
    t,
    {
      delta: (request, call) => {
        requests.push(request);
        call.write(answer);
      },
    },
    'default',
    '--delta',
  );
  assert.match(out, /^default, version 9: certificate and key$/m);
  assert.deepEqual(requests[0]?.resourceNamesSubscribe, ['default']);
});

test('says that a server does not serve a name, when it says so', async (t) => {
  const answer = deltaDiscoveryResponse.encode({ typeUrl: SECRET_TYPE_URL, nonce: 'n', removedResources: ['web'] });
  const { code, err } = await get(t, { delta: (_request, call) => void call.write(answer) }, 'web', '--delta');
  assert.equal(code, 1);
  assert.match(err, /does not serve web \[ERR_SDSD_SDS\]\n {2}try: /);
});

test('fetches once, and shows a gRPC status by its name', async (t) => {
  const good = await get(t, { fetch: (_request, reply) => reply(null, sotw(certificate())) }, 'default', '--fetch');
  assert.match(good.out, /certificate and key/);
  const bad = await get(
    t,
    { fetch: (_request, reply) => reply({ code: status.NOT_FOUND, details: 'no "web" here' }) },
    'web',
    '--fetch',
  );
  assert.equal(bad.code, 1);
  assert.match(bad.err, /answered NOT_FOUND: no "web" here \[ERR_SDSD_SDS\]/);
});

test('waits past answers without the name, and gives up in time', async (t) => {
  const late: FakeSds = {
    stream: (_request, call, index) => {
      if (index === 0) {
        call.write(sotw());
        setTimeout(() => call.write(sotw(certificate())), 20);
      }
    },
  };
  assert.equal((await get(t, late, 'default')).code, 0);
  const never = await get(
    t,
    { stream: (_request, call, index) => void (index === 0 && call.write(sotw())) },
    'web',
    '--timeout',
    '50ms',
  );
  assert.equal(never.code, 1);
  assert.match(never.err, /did not send web within 0\.05 s.*\[ERR_SDSD_TIMEOUT\]/);
  const mute = await get(t, {}, 'web', '--fetch', '--timeout', '50ms');
  assert.match(mute.err, /ERR_SDSD_TIMEOUT/);
});

test('refuses an answer that is not what was asked for', async (t) => {
  const cases: readonly [answer: Buffer, why: RegExp][] = [
    [sotw(certificate('web')), /named "web" instead/],
    [sotw(certificate(), roots()), /2 secrets/],
    [sotw({ name: 'default' }), /neither a certificate nor roots/],
    [sotw({ ...certificate(), tlsCertificate: { certificateChain: null, privateKey: null } }), /no certificate chain/],
    [discoveryResponse.encode({ typeUrl: 'type.googleapis.com/x', nonce: 'n' }), /of the type/],
    [Buffer.from([0xff, 0xff]), /cannot be decoded/],
  ];
  for (const [answer, why] of cases) {
    const { code, out, err } = await get(t, answering(answer), 'default');
    assert.equal(code, 1);
    assert.equal(out, '');
    assert.match(err, why);
    assert.match(err, /\[ERR_SDSD_SDS\]/);
  }
});

test('shows a secret that lies in files of the server', async (t) => {
  const inFiles = { certificateChain: { filename: '/certs/chain.pem' }, privateKey: { filename: '/certs/key.pem' } };
  const { out } = await get(t, answering(sotw({ name: 'default', tlsCertificate: inFiles })), 'default');
  assert.match(out, /certificate in the file \/certs\/chain\.pem/);
});

test('escapes what a server sends to harm the terminal', async (t) => {
  const hostile: FakeSds = { fetch: (_request, reply) => reply({ code: status.UNKNOWN, details: 'a\nb' }) };
  assert.match((await get(t, hostile, 'default', '--fetch')).err, /UNKNOWN: a\\nb/);
});

test('watches: prints each push, acknowledges it, and ends at Ctrl-C without an error', async (t) => {
  const requests: DiscoveryRequest[] = [];
  const socket = await fakeSdsServer(t, {
    stream: (request, call, index) => {
      requests.push(request);
      if (index < 2) call.write(sotw(certificate('default', index === 0 ? leaf : other)));
      if (index === 2) io.signal('SIGINT');
    },
  });
  const io = fakeIo({ clock });
  assert.equal(await runCli(['get', 'default', '--watch', '--socket', socket], io), 0);
  assert.equal(io.err(), '');
  assert.equal(io.out().match(/^default, version 7/gm)?.length, 2);
  const acks = requests
    .slice(1)
    .map(({ versionInfo, responseNonce, errorDetail }) => [versionInfo, responseNonce, errorDetail]);
  assert.deepEqual(acks, [
    ['7', 'n7', null],
    ['7', 'n7', null],
  ]);
});

test('watches no longer when the server refuses', async (t) => {
  const server: FakeSds = {
    stream: (_request, call, index) => {
      if (index === 0) call.write(sotw(certificate()));
      else call.emit('error', { code: status.PERMISSION_DENIED, details: 'not for you' });
    },
  };
  const { code, out, err } = await get(t, server, 'default', '--watch');
  assert.equal(code, 1);
  assert.match(out, /certificate and key/);
  assert.match(err, /answered PERMISSION_DENIED: not for you/);
  const ending = await get(t, { stream: (_request, call) => void call.end() }, 'default', '--watch');
  assert.equal(ending.code, 1, 'before the first secret, waiting is no help');
  assert.match(ending.err, /ended the stream \[ERR_SDSD_SDS\]/);
});

test('says how to start the daemon when none runs', async () => {
  const { code, err } = await cli(['get', 'default', '--socket', '/nowhere/s']);
  assert.equal(code, 1);
  assert.match(
    err,
    /there is no socket \/nowhere\/s: is sdsd running\? \[ERR_SDSD_SOCKET\]\n {2}try: start it with `sdsd run`/,
  );
});

test('refuses options that contradict each other, before anything is asked', async () => {
  const cases: readonly [args: readonly string[], why: RegExp][] = [
    [['--with-key'], /-o pem or -o json/],
    [['--fetch', '--delta'], /exclude each other/],
    [['--fetch', '--watch'], /nothing to watch/],
    [['--timeout', '10'], /--timeout 10 cannot be used: the number needs a unit/],
    [['--timeout', '0s'], /--timeout 0s/],
    [['-o', 'yaml'], /text, pem, json/],
  ];
  for (const [args, why] of cases) {
    const { code, err } = await cli(['get', 'default', ...args]);
    assert.equal(code, 2);
    assert.match(err, why);
    assert.match(err, /\[ERR_SDSD_USAGE\]/);
  }
});

test('says what is wrong with the socket when no server can be asked', async (t) => {
  const directory = workDirectory(t);
  writeFileSync(join(directory, 'file'), '');
  const listening = async (name: string, onConnection: (socket: Socket) => void): Promise<string> => {
    const sockets = new Set<Socket>();
    const server = createServer((socket) => {
      sockets.add(socket.on('error', () => undefined));
      onConnection(socket);
    });
    await new Promise<void>((resolve) => void server.listen(join(directory, name), resolve));
    t.after(() => {
      for (const socket of sockets) socket.destroy();
      server.close();
    });
    return join(directory, name);
  };
  const http = await listening('http', (socket) => void socket.end('HTTP/1.1 400 Bad Request\r\n\r\n'));
  const closing = await listening('closing', (socket) => void socket.destroy());
  const mute = await listening('mute', () => undefined);
  const cases: readonly [socket: string, message: RegExp][] = [
    [join(directory, 'absent'), /there is no socket .*absent: is sdsd running\?/],
    [join(directory, 'file'), /file is not a socket/],
    [http, /is no SDS server: it does not speak HTTP\/2/],
    [closing, /is no SDS server: it does not speak HTTP\/2/],
    [mute, /says nothing: it is no SDS server, or hangs/],
  ];
  for (const [socket, message] of cases) {
    for (const more of [[], ['--fetch'], ['--watch']]) {
      const { code, out, err } = await cli(['get', 'default', '--socket', socket, '--timeout', '300ms', ...more], {
        clock,
      });
      assert.deepEqual([code, out], [1, '']);
      assert.match(err, message);
      assert.match(err, /\[ERR_SDSD_SOCKET\]\n {2}try: /);
    }
  }
});

test('says mode and group of a socket that this user may not use', async (t) => {
  const socket = await fakeSdsServer(t, {});
  chmodSync(socket, 0o660);
  const error = Object.assign(new Error('connect EACCES'), { code: 'EACCES' });
  const fault = await socketFault(socket, { kind: 'refused', error });
  assert.equal(fault?.code, 'ERR_SDSD_SOCKET');
  assert.match(
    fault?.message ?? '',
    /may not use the socket .*: its mode is 0660, its owner \w+ \(\d+\), its group \w+ \(\d+\)$/,
  );
  assert.match(fault?.hint ?? '', /as its owner, or as a member of the group \w+ \(\d+\)$/);
  chmodSync(socket, 0o600);
  assert.equal((await socketFault(socket, { kind: 'refused', error }))?.hint, 'run the command as its owner');
});

test('keeps an UNAVAILABLE of the server itself apart from a socket that cannot be used', async (t) => {
  const busy: FakeSds = {
    fetch: (_request, reply) => reply({ code: status.UNAVAILABLE, details: 'connect ENOENT /x' }),
  };
  const { err } = await get(t, busy, 'default', '--fetch');
  assert.match(err, /answered UNAVAILABLE: connect ENOENT \/x \[ERR_SDSD_SDS\]/);
});

test('watches on when the server goes away: says so once, and shows what is new when it is back', async (t) => {
  let calls = 0;
  const socket = await fakeSdsServer(t, {
    stream: (_request, call, index) => {
      if (index > 0) return;
      calls += 1;
      if (calls === 1) call.write(sotw(certificate()));
      if (calls <= 3) setTimeout(() => call.end(), 20);
      if (calls === 4) call.write(sotw(certificate()));
      if (calls === 4) setTimeout(() => call.write(sotw(certificate('default', other))), 20);
    },
  });
  const io = fakeIo({
    // A second is over at once.
    clock: {
      now: () => NOW,
      at: (time, callback) => clock.at(time - NOW === 1_000 ? NOW + 10 : time, callback),
      every: clock.every,
    },
    onOut: (text) => void ((text.match(/^default, /gm)?.length ?? 0) === 2 && io.signal('SIGINT')),
  });
  assert.equal(await runCli(['get', 'default', '--watch', '--socket', socket], io), 0);
  assert.match(io.err(), /^sdsd: .*ended the stream; waiting for it until Ctrl-C\nsdsd: the server is back\n$/);
  assert.equal(calls, 4);
});

test('says at once that a name is not served, although state of the world has no word for it', async (t) => {
  let asked = 0;
  const { code, err } = await get(
    t,
    {
      stream: () => undefined,
      fetch: (_request, reply) => {
        asked += 1;
        reply({ code: status.NOT_FOUND, details: 'secret "nope" is not served' });
      },
    },
    'nope',
  );
  assert.equal(code, 1);
  assert.equal(asked, 1);
  assert.match(err, /answered NOT_FOUND: secret "nope" is not served \[ERR_SDSD_SDS\]\n {2}try: check the name/);
});

test('waits on when the silent server has the name, and no secret yet, or does not say', async (t) => {
  for (const answer of [{ code: status.UNAVAILABLE }, { code: status.UNIMPLEMENTED }]) {
    let late: ((bytes: Buffer) => void) | undefined;
    const { code, out } = await get(
      t,
      {
        stream: (_request, call) => {
          late ??= (bytes) => void call.write(bytes);
        },
        fetch: (_request, reply) => {
          reply({ ...answer, details: 'not yet' });
          late?.(sotw(certificate()));
        },
      },
      'default',
    );
    assert.equal(code, 0);
    assert.match(out, /certificate and key/);
  }
});

test('watches in JSON with one line for each change', async (t) => {
  const io = fakeIo({ clock });
  const socket = await fakeSdsServer(t, {
    stream: (_request, call, index) => {
      if (index < 3) call.write(sotw(certificate('default', index % 2 ? other : leaf)));
      else io.signal('SIGINT');
    },
  });
  assert.equal(await runCli(['get', 'default', '--watch', '-o', 'json', '--socket', socket], io), 0);
  const lines = io.out().trimEnd().split('\n');
  assert.equal(lines.length, 3);
  for (const line of lines) assert.equal(JSON.parse(line).name, 'default');
});

test('writes the key for other programs as PKCS#8, in whatever form it is served', async (t) => {
  const traditional = encodePrivateKey(leaf.key, 'traditional');
  const message: Partial<SecretMessage> = {
    name: 'default',
    tlsCertificate: {
      certificateChain: { inlineBytes: Buffer.from(leaf.certificate.pem) },
      privateKey: { inlineBytes: traditional },
    },
  };
  const { out } = await get(t, answering(sotw(message)), 'default', '-o', 'pem', '--with-key');
  assert.match(out, /-----BEGIN PRIVATE KEY-----/);
  assert.doesNotMatch(out, /EC PRIVATE KEY/);
  assert.ok(leaf.certificate.x509.checkPrivateKey(createPrivateKey(out)));
});
