import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { request as httpRequest } from 'node:http';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { controlClient, controlRequest, type DaemonControl, startControlServer } from '../../../src/admin/index.js';
import { systemClock } from '../../../src/clock.js';
import { type ErrorCode, SdsdError } from '../../../src/errors.js';
import { type LogFields, silentLogger } from '../../../src/log.js';
import { fakeDaemonControl, STATUS } from './fake-daemon-control.js';

function socketPath(t: TestContext): string {
  const directory = mkdtempSync(join(tmpdir(), 'sdsd-admin-'));
  t.after(() => rmSync(directory, { recursive: true, force: true }));
  return join(directory, 'run', 'admin.sock');
}

async function serve(t: TestContext, overrides: Partial<DaemonControl> = {}) {
  const path = socketPath(t);
  const daemon = fakeDaemonControl(overrides);
  const logged: [string, LogFields | undefined][] = [];
  const log = { ...silentLogger, error: (message: string, fields?: LogFields) => void logged.push([message, fields]) };
  const server = await startControlServer({ path, daemon, clock: systemClock, log });
  t.after(() => server.close());
  return { path, daemon, logged, server, client: controlClient(path) };
}

interface Raw {
  readonly method: string;
  readonly route: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string | Buffer;
}

function raw(
  path: string,
  { method, route, headers = {}, body }: Raw,
): Promise<{ status: number; headers: object; body: string }> {
  return new Promise((resolve, reject) => {
    const outgoing = httpRequest({ socketPath: path, method, path: route, headers, agent: false }, (incoming) => {
      let text = '';
      incoming.setEncoding('utf8').on('data', (part: string) => {
        text += part;
      });
      incoming.on('end', () => resolve({ status: incoming.statusCode ?? 0, headers: incoming.headers, body: text }));
    });
    outgoing.on('error', reject);
    outgoing.end(body);
  });
}

const JSON_TYPE = { 'content-type': 'application/json' };

test('answers every command over the socket', async (t) => {
  const { client, daemon } = await serve(t);
  assert.deepEqual(await client.status(), STATUS);
  assert.deepEqual(
    (await client.rotate('web')).rotated.map(({ name }) => name),
    ['web'],
  );
  assert.deepEqual(
    (await client.rotate()).rotated.map(({ name }) => name),
    ['default'],
  );
  assert.deepEqual(await client.rotateRoot(), { fingerprint: 'ab12', notAfter: '2040-01-01T00:00:00.000Z' });
  assert.deepEqual(await client.issue({ identity: 'spiffe://a/b', csrPem: 'csr' }), {
    chainPem: 'chain\n',
    rootsPem: 'roots\n',
    askedTtlMs: 86_400_000,
  });
  await client.issue({ identity: 'spiffe://a/b', csrPem: 'csr', ttlMs: 1_000 });
  assert.deepEqual(await client.roots(), { pem: 'roots\n' });
  assert.deepEqual(daemon.calls, [
    ['rotate', 'web'],
    ['rotate', undefined],
    ['rotateRoot'],
    ['issue', { identity: 'spiffe://a/b', csrPem: 'csr', foreignTrustDomain: false }],
    ['issue', { identity: 'spiffe://a/b', csrPem: 'csr', foreignTrustDomain: false, ttlMs: 1_000 }],
  ]);
});

test('lets only its own user in', async (t) => {
  const { path } = await serve(t);
  assert.equal(statSync(path).mode & 0o777, 0o600);
});

test('refuses what is not one of its requests, and the daemon hears nothing of it', async (t) => {
  const { path, daemon } = await serve(t);
  const cases: readonly [request: Raw, status: number, message: RegExp][] = [
    [{ method: 'GET', route: '/nothing' }, 404, /there are \/status/],
    [{ method: 'GET', route: '/rotate' }, 405, /takes POST only/],
    [{ method: 'POST', route: '/status', headers: JSON_TYPE, body: '{}' }, 405, /takes GET only/],
    [{ method: 'POST', route: '/rotate', body: '{}' }, 415, /application\/json/],
    [
      { method: 'POST', route: '/rotate', headers: { 'content-type': 'text/plain' }, body: '{}' },
      415,
      /application\/json/,
    ],
    [{ method: 'POST', route: '/rotate', headers: JSON_TYPE, body: '{' }, 400, /not JSON/],
    [{ method: 'POST', route: '/rotate', headers: JSON_TYPE, body: '[]' }, 400, /JSON object/],
    [{ method: 'POST', route: '/rotate', headers: JSON_TYPE, body: '{"name":1}' }, 400, /"name" must be a string/],
    [{ method: 'POST', route: '/issue', headers: JSON_TYPE, body: '{}' }, 400, /"identity" is missing/],
    [{ method: 'POST', route: '/issue', headers: JSON_TYPE, body: '{"identity":"a"}' }, 400, /"csrPem" is missing/],
    [
      { method: 'POST', route: '/issue', headers: JSON_TYPE, body: '{"identity":"a","csrPem":"b","ttlMs":-1}' },
      400,
      /"ttlMs"/,
    ],
    [
      { method: 'POST', route: '/rotate', headers: { ...JSON_TYPE, origin: 'http://evil.example' }, body: '{}' },
      403,
      /web pages/,
    ],
    [{ method: 'GET', route: '/status', headers: { 'sec-fetch-site': 'cross-site' } }, 403, /web pages/],
  ];
  for (const [request, status, message] of cases) {
    const answer = await raw(path, request);
    assert.equal(answer.status, status, `${request.method} ${request.route}`);
    const { error } = JSON.parse(answer.body);
    assert.equal(error.code, 'ERR_SDSD_CONTROL');
    assert.match(error.message, message);
  }
  assert.deepEqual(daemon.calls, []);
});

test('takes requests for any host, with an empty body and with a charset', async (t) => {
  const { path } = await serve(t);
  const headers = { 'content-type': 'application/json; charset=utf-8', host: 'elsewhere.example' };
  assert.equal((await raw(path, { method: 'POST', route: '/rotate', headers })).status, 200);
  assert.equal((await raw(path, { method: 'GET', route: '/status?x=1', headers: { host: '' } })).status, 200);
});

test('answers a body that is too long with 413, and goes on serving', async (t) => {
  const { path, client, daemon } = await serve(t);
  const fits = JSON.stringify({ name: 'x'.repeat(64 * 1024 - 11) });
  assert.equal(fits.length, 64 * 1024);
  assert.equal((await raw(path, { method: 'POST', route: '/rotate', headers: JSON_TYPE, body: fits })).status, 200);
  const answer = await raw(path, { method: 'POST', route: '/rotate', headers: JSON_TYPE, body: `${fits} ` });
  assert.equal(answer.status, 413);
  assert.equal(daemon.calls.length, 1);
  await client.status();
});

test("hands the daemon's errors to the caller with their code, hint and a fitting status", async (t) => {
  const cases: readonly [code: ErrorCode, status: number][] = [
    ['ERR_SDSD_RESOURCE_NAME', 404],
    ['ERR_SDSD_CSR', 400],
    ['ERR_SDSD_SPIFFE_ID', 400],
    ['ERR_SDSD_CA', 502],
    ['ERR_SDSD_TIMEOUT', 504],
    ['ERR_SDSD_CONTROL', 409],
    ['ERR_SDSD_STATE', 500],
  ];
  for (const [code, status] of cases) {
    const { path, client } = await serve(t, {
      rotate: async () => {
        throw new SdsdError(code, 'it failed', { hint: 'mend it' });
      },
    });
    assert.equal((await raw(path, { method: 'POST', route: '/rotate', headers: JSON_TYPE })).status, status);
    await assert.rejects(client.rotate(), { name: 'SdsdError', code, message: 'it failed', hint: 'mend it' });
  }
});

test('keeps the text of an error that nobody expected for its log', async (t) => {
  const { client, logged } = await serve(t, {
    status: () => {
      throw new Error('inner secret');
    },
  });
  await assert.rejects(client.status(), { code: 'ERR_SDSD_CONTROL', message: /did not expect/ });
  assert.equal(logged.length, 1);
  assert.match(String(logged[0]?.[1]?.['error']), /inner secret/);
});

test('ends requests that still wait when it closes', async (t) => {
  let asked: () => void = () => undefined;
  const waiting = new Promise<void>((resolve) => {
    asked = resolve;
  });
  const { client, server, path } = await serve(t, {
    rotate: () => {
      asked();
      return new Promise(() => undefined);
    },
  });
  const rotation = assert.rejects(client.rotate(), { code: 'ERR_SDSD_CONTROL', message: /did not answer/ });
  await waiting;
  await server.close();
  await rotation;
  await assert.rejects(client.status(), { code: 'ERR_SDSD_CONTROL', message: new RegExp(`${path}: is sdsd running`) });
});

test('says how to start the daemon when none runs', async (t) => {
  await assert.rejects(controlRequest(socketPath(t), 'GET', '/status'), {
    code: 'ERR_SDSD_CONTROL',
    message: /is sdsd running\?/,
    hint: /sdsd run/,
  });
});

test('does not take another server for the daemon', async (t) => {
  const path = `${socketPath(t).replace('/run/', '/')}`;
  const answers = [
    'HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi',
    'HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}',
    'nonsense',
  ];
  const server = createServer((socket) => socket.once('data', () => socket.end(answers.shift() ?? '')));
  await new Promise<void>((resolve) => void server.listen(path, resolve));
  t.after(() => server.close());
  await assert.rejects(controlClient(path).status(), { code: 'ERR_SDSD_CONTROL', message: /not the control socket/ });
  await assert.rejects(controlClient(path).status(), {
    code: 'ERR_SDSD_CONTROL',
    message: /\/status\.version is not a string/,
  });
  await assert.rejects(controlClient(path).status(), { code: 'ERR_SDSD_CONTROL', message: /not the control socket/ });
});

test('refuses to take the place of a daemon that runs', async (t) => {
  const { path, client } = await serve(t);
  const second = startControlServer({ path, daemon: fakeDaemonControl(), clock: systemClock, log: silentLogger });
  await assert.rejects(second, { code: 'ERR_SDSD_SOCKET_IN_USE' });
  await client.status();
});
