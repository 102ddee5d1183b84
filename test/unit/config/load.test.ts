import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import {
  type Config,
  EXAMPLE_FILE,
  type FlagValues,
  loadClientConfig,
  loadConfig,
  settingList,
} from '../../../src/config/index.js';
import { SdsdError } from '../../../src/errors.js';

const directory = mkdtempSync(join(tmpdir(), 'sdsd-config-'));
after(() => rmSync(directory, { recursive: true, force: true }));

interface Given {
  readonly flags?: FlagValues;
  readonly env?: Readonly<Record<string, string>>;
  readonly yaml?: string;
}

let files = 0;

async function load({ flags = {}, env = {}, yaml }: Given): Promise<Config> {
  return loadConfig({ flags, env, cwd: '/base', file: yaml === undefined ? undefined : writeYaml(yaml) });
}

function writeYaml(text: string): string {
  const path = join(directory, `${files++}.yaml`);
  writeFileSync(path, text);
  return path;
}

async function refusalOf(given: Given): Promise<SdsdError> {
  try {
    await load(given);
  } catch (error) {
    assert.ok(error instanceof SdsdError, String(error));
    assert.equal(error.code, 'ERR_SDSD_CONFIG');
    assert.ok(error.hint, 'an error of the configuration says what to do');
    return error;
  }
  throw new assert.AssertionError({ message: `${JSON.stringify(given)} was taken` });
}

test('needs no settings at all', async () => {
  assert.deepEqual(await load({}), {
    workingDirectory: '/base',
    socket: '/base/var/run/secrets/workload-spiffe-uds/socket',
    socketMode: 0o660,
    stateDir: '/base/var/lib/sdsd',
    stateKeyFile: undefined,
    controlSocket: '/base/var/run/sdsd/admin.sock',
    identity: {
      trustDomain: 'cluster.local',
      namespace: 'default',
      serviceAccount: 'default',
      spiffeId: 'spiffe://cluster.local/ns/default/sa/default',
    },
    identities: [],
    certificates: { ttl: 86_400_000, gracePeriodRatio: 0.5, gracePeriodRatioJitter: 0.05 },
    ca: { provider: 'local', files: undefined, intermediate: false },
    keys: { spec: { kind: 'ecdsa', curve: 'P-256' }, encoding: 'traditional' },
    maxIdleNames: 10_000,
    rootAckTimeout: 10_000,
    caTimeout: 10_000,
    limits: { connections: 10_000, streams: 100_000, namesPerStream: 10_000, clientMemory: undefined },
    logLevel: 'info',
  });
});

test('a flag counts before the environment, the environment before the file, the file before the default', async () => {
  const flags = { socket: '/flag' };
  const env = { SDS_SOCKET: '/env' };
  const yaml = 'socket: /file';
  const cases: readonly [Given, string][] = [
    [{ flags, env, yaml }, '/flag'],
    [{ env, yaml }, '/env'],
    [{ yaml }, '/file'],
    [{}, '/base/var/run/secrets/workload-spiffe-uds/socket'],
  ];
  for (const [given, socket] of cases) assert.equal((await load(given)).socket, socket);
});

test('takes every setting from the environment and from the file alike', async () => {
  const values: Readonly<Record<string, string>> = {
    socket: 'a.sock',
    socketMode: '0600',
    stateDir: 'state',
    stateKeyFile: '/keys/state.key',
    caTimeout: '2s',
    maxConnections: '8',
    maxStreams: '9',
    maxNamesPerStream: '11',
    maxClientMemory: '64MiB',
    controlSocket: 'c.sock',
    trustDomain: 'example.org',
    namespace: 'shop',
    serviceAccount: 'web',
    secretTtl: '1h',
    gracePeriodRatio: '0.25',
    gracePeriodRatioJitter: '0',
    caProvider: 'local',
    caAddr: 'istiod:15012',
    caCertFile: 'ca.pem',
    caKeyFile: '/keys/ca.key',
    caRootFile: 'root.pem',
    caIntermediate: 'true',
    rsaKeySize: '3072',
    eccCurve: 'P384',
    pkcs8Key: 'true',
    maxIdleNames: '7',
    rootAckTimeout: '1s',
    logLevel: 'debug',
  };
  const fromFile = await load({
    yaml: `${Object.entries(values)
      .map(([key, value]) => `${key}: ${value}\n`)
      .join('')}identities:\n  web: spiffe://example.org/web\n`,
  });
  const env: Record<string, string> = { SDSD_IDENTITIES: 'web=spiffe://example.org/web' };
  for (const { key, variables } of settingList) {
    const value = values[key];
    if (value !== undefined) env[variables[0]] = value;
  }
  assert.deepEqual(await load({ env }), fromFile);
  assert.deepEqual(fromFile, {
    workingDirectory: '/base',
    socket: '/base/a.sock',
    socketMode: 0o600,
    stateDir: '/base/state',
    stateKeyFile: '/keys/state.key',
    controlSocket: '/base/c.sock',
    identity: {
      trustDomain: 'example.org',
      namespace: 'shop',
      serviceAccount: 'web',
      spiffeId: 'spiffe://example.org/ns/shop/sa/web',
    },
    identities: [{ name: 'web', spiffeId: 'spiffe://example.org/web' }],
    certificates: { ttl: 3_600_000, gracePeriodRatio: 0.25, gracePeriodRatioJitter: 0 },
    ca: {
      provider: 'local',
      files: { cert: '/base/ca.pem', key: '/keys/ca.key', root: '/base/root.pem' },
      intermediate: true,
    },
    keys: { spec: { kind: 'rsa', bits: 3072 }, encoding: 'pkcs8' },
    maxIdleNames: 7,
    rootAckTimeout: 1_000,
    caTimeout: 2_000,
    limits: { connections: 8, streams: 9, namesPerStream: 11, clientMemory: 64 * 1024 * 1024 },
    logLevel: 'debug',
  });
});

test('names setting, source, value and what is allowed for every bad value', async () => {
  const cases: readonly [variable: string, value: string, why: RegExp][] = [
    ['SDSD_SOCKET_MODE', '0888', /octal/],
    ['SDSD_SOCKET_MODE', '0060', /owner/],
    ['TRUST_DOMAIN', 'Example.org', /"E", a character/],
    ['TRUST_DOMAIN', 'a/b', /character/],
    ['TRUST_DOMAIN', '..', /dot at its begin/],
    ['TRUST_DOMAIN', 'a..b', /two in a row/],
    ['SDSD_IDENTITIES', 'web=spiffe://cluster.local', /has no path/],
    ['TRUST_DOMAIN', '', /empty/],
    ['TRUST_DOMAIN', 'a'.repeat(256), /256 characters/],
    ['POD_NAMESPACE', '', /empty/],
    ['POD_NAMESPACE', '..', /"\.\."/],
    ['SERVICE_ACCOUNT', 'a/b', /character/],
    ['SECRET_TTL', '24', /unit/],
    ['SECRET_TTL', '1s', /shorter than 2s/],
    ['SECRET_TTL', '90000h', /long/],
    ['SECRET_TTL', '-1h', /short/],
    ['SECRET_GRACE_PERIOD_RATIO', '1.1', /greater/],
    ['SECRET_GRACE_PERIOD_RATIO', '-0.1', /decimal/],
    ['SECRET_GRACE_PERIOD_RATIO', 'NaN', /decimal/],
    ['SECRET_GRACE_PERIOD_RATIO_JITTER', '2', /greater/],
    ['SDSD_CA_INTERMEDIATE', 'yes', /neither/],
    ['WORKLOAD_RSA_KEY_SIZE', '1024', /size/],
    ['ECC_SIGNATURE_ALGORITHM', 'ED25519', /Ed25519/],
    ['ECC_SIGNATURE_ALGORITHM', 'RSA', /no such algorithm/],
    ['ECC_CURVE', 'P521', /curve/],
    ['PKCS8_KEY', 'on', /neither/],
    ['SDSD_MAX_IDLE_NAMES', '-1', /whole number/],
    ['SDSD_MAX_IDLE_NAMES', '1000001', /larger than 1000000/],
    ['SDSD_ROOT_ACK_TIMEOUT', '2h', /long/],
    ['SDSD_LOG_LEVEL', 'trace', /level/],
  ];
  for (const [variable, value, why] of cases) {
    const { message, hint } = await refusalOf({ env: { [variable]: value } });
    assert.match(message, why);
    assert.ok(message.startsWith(`environment variable ${variable} cannot be "`), message);
    const setting = settingList.find(({ variables }) => variables.some((name) => name === variable));
    assert.ok(setting);
    assert.equal(hint, `${variable}=${setting.example} (allowed: ${setting.allowed})`);
  }
});

test('says of a flag and of a line in the file where the bad value stands', async () => {
  assert.match((await refusalOf({ flags: { secretTtl: 'x' } })).message, /^flag --secret-ttl cannot be "x"/);
  assert.match((await refusalOf({ yaml: '# ttl\n\nsecretTtl: x\n' })).message, /\.yaml:3: secretTtl cannot be "x"/);
});

test('shows in the `try:` line what can stand in that place', async () => {
  assert.match((await refusalOf({ flags: { secretTtl: 'x' } })).hint ?? '', /^--secret-ttl 24h \(allowed: /);
  assert.match((await refusalOf({ yaml: 'secretTtl: x\n' })).hint ?? '', /^secretTtl: 24h \(allowed: /);
  assert.match((await refusalOf({ yaml: 'identities: [x]\n' })).hint ?? '', /^identities: \[web=spiffe:/);
});

test('the example of every setting can be used, and the example of a file too', async () => {
  for (const { key, variables, example } of settingList) {
    const env = { CA_PROVIDER: 'local', SDSD_CA_CERT: 'a', SDSD_CA_KEY: 'b', [variables[0]]: example };
    await assert.doesNotReject(load({ env }), key);
  }
  const { socketMode, identities, certificates } = await load({ yaml: EXAMPLE_FILE });
  assert.equal(socketMode, 0o660);
  assert.deepEqual(
    identities.map(({ name }) => name),
    ['web', 'api'],
  );
  assert.equal(certificates.ttl, 3_600_000);
});

test('never shows PEM data that stands where a path should', async () => {
  const { message } = await refusalOf({ env: { SDSD_CA_KEY: '-----BEGIN PRIVATE KEY-----\nMIGHAgEA\n' } });
  assert.doesNotMatch(message, /MIGHAgEA/);
  assert.match(message, /SDSD_CA_KEY cannot be PEM data/);
});

test('takes an empty variable as one that is not set, except in an identity', async () => {
  const config = await load({
    env: { SDS_SOCKET: '', SECRET_TTL: '', CA_ADDR: '', CA_PROVIDER: '', SDSD_IDENTITIES: '' },
  });
  assert.deepEqual(config, await load({}));
});

test("takes systemd's state directory, the first of several, unless SDSD_STATE_DIR is set", async () => {
  const env = { STATE_DIRECTORY: '/var/lib/sdsd:/var/lib/more' };
  assert.equal((await load({ env })).stateDir, '/var/lib/sdsd');
  assert.equal((await load({ env: { ...env, SDSD_STATE_DIR: '/own' } })).stateDir, '/own');
});

test('keeps ECDSA keys when they are asked for next to an RSA key size', async () => {
  const env = { WORKLOAD_RSA_KEY_SIZE: '2048', ECC_SIGNATURE_ALGORITHM: 'ECDSA', ECC_CURVE: 'P384' };
  assert.deepEqual((await load({ env })).keys.spec, { kind: 'ecdsa', curve: 'P-384' });
});

test('reads identities from repeated flags, a comma-separated variable, a map and a sequence', async () => {
  const expected = [
    { name: 'web', spiffeId: 'spiffe://a/web' },
    { name: 'spiffe://a/x', spiffeId: 'spiffe://a/x' },
    { name: 'team/api', spiffeId: 'spiffe://a/api' },
  ];
  const items = ['web=spiffe://a/web', 'spiffe://a/x', 'team/api=spiffe://a/api'];
  const given: readonly Given[] = [
    { flags: { identities: items } },
    { env: { SDSD_IDENTITIES: `${items.join(' , ')},` } },
    { yaml: `identities:\n${items.map((item) => `  - ${item}\n`).join('')}` },
    { yaml: 'identities:\n  web: spiffe://a/web\n  spiffe://a/x: spiffe://a/x\n  team/api: spiffe://a/api\n' },
  ];
  for (const sources of given) assert.deepEqual((await load(sources)).identities, expected);
});

test('refuses identities whose name is taken, malformed or given twice', async () => {
  const cases: readonly [item: string, why: RegExp][] = [
    ['web', /no "="/],
    ['=spiffe://a/b', /name is empty/],
    ['default=spiffe://a/b', /fixed meaning/],
    ['ROOTCA=spiffe://a/b', /fixed meaning/],
    ['rootca=spiffe://a/b', /fixed meaning/],
    ['file-cert:x=spiffe://a/b', /fixed meaning/],
    ['kubernetes://x=spiffe://a/b', /fixed meaning/],
    ['spiffe://a/other=spiffe://a/b', /stand for itself/],
    ['a b=spiffe://a/b', /character/],
    ['*=spiffe://a/b', /character/],
    ['/a=spiffe://a/b', /slash/],
    ['a/=spiffe://a/b', /slash/],
    [`${'a'.repeat(254)}=spiffe://a/b`, /254 characters/],
    ['web=http://a/b', /SPIFFE ID/],
    ['web=spiffe://a//b', /SPIFFE ID/],
  ];
  for (const [item, why] of cases)
    assert.match((await refusalOf({ flags: { identities: [item] } })).message, why, item);
  const twice = await refusalOf({ flags: { identities: ['web=spiffe://a/b', 'web=spiffe://a/c'] } });
  assert.match(twice.message, /web is given twice/);
  assert.equal(twice.hint, 'give each name once');
});

test('uses the local CA unasked only where no other is meant', async () => {
  const kubernetes = { KUBERNETES_SERVICE_HOST: '10.0.0.1' };
  for (const env of [
    {},
    { CA_PROVIDER: 'local' },
    { ...kubernetes, CA_PROVIDER: 'local' },
    { CA_ADDR: 'x', CA_PROVIDER: 'local' },
  ]) {
    assert.equal((await load({ env })).ca.provider, 'local');
  }
  assert.match((await refusalOf({ env: kubernetes })).hint ?? '', /CA_PROVIDER=local/);
  assert.match(
    (await refusalOf({ env: { CA_ADDR: 'istiod:15012' } })).message,
    /CA_ADDR.*istiod:15012.*only its own local CA/,
  );
  assert.match((await refusalOf({ env: { CA_PROVIDER: 'Citadel' } })).message, /CA_PROVIDER is "Citadel".*local CA/);
});

test('wants certificate and key of an own CA together', async () => {
  for (const env of [
    { SDSD_CA_CERT: 'a' },
    { SDSD_CA_KEY: 'a' },
    { SDSD_CA_ROOT: 'a' },
    { SDSD_CA_KEY: 'a', SDSD_CA_ROOT: 'b' },
  ]) {
    const { message } = await refusalOf({ env });
    for (const variable of Object.keys(env)) assert.match(message, new RegExp(`given: .*${variable}`));
  }
  assert.deepEqual((await load({ env: { SDSD_CA_CERT: 'a', SDSD_CA_KEY: 'b' } })).ca.files, {
    cert: '/base/a',
    key: '/base/b',
    root: undefined,
  });
});

test('names the nearest known key for one that is not known', async () => {
  const cases: readonly [key: string, hint: RegExp][] = [
    ['sokcet', /did you mean socket\?/],
    ['secret_ttl', /did you mean secretTtl\?/],
    ['SECRET_TTL', /did you mean secretTtl\?/],
    ['POD_NAMESPACE', /did you mean namespace\?/],
    ['trust-domain', /did you mean trustDomain\?/],
    ['completelyElse', /the settings are socket, /],
  ];
  for (const [key, hint] of cases) {
    const refusal = await refusalOf({ yaml: `logLevel: info\n${key}: x\n` });
    assert.match(refusal.message, new RegExp(`\\.yaml:2: there is no setting "${key}"`));
    assert.match(refusal.hint ?? '', hint);
  }
});

test('says which line of a file is not what a configuration file holds', async () => {
  const cases: readonly [yaml: string, message: RegExp][] = [
    ['- a\n', /:1: the file must be a map/],
    ['socket: /a\nsocket: /b\n', /:2: this is not YAML/],
    ['socket: [a]\n', /:1: a plain value is needed/],
    ['identities: web\n', /:1: identities must be a map/],
    ['identities:\n  web: [a]\n', /:2: a plain value is needed/],
    ['logLevel: info\nsocket: "a\n', /this is not YAML/],
    ['socket:\n', /:1: socket cannot be "": a path must not be empty/],
    ['socket: *nobody\n', /this is not YAML|plain value/],
  ];
  for (const [yaml, message] of cases) assert.match((await refusalOf({ yaml })).message, message, yaml);
});

test('takes an empty file as no settings, and follows aliases', async () => {
  assert.deepEqual(await load({ yaml: '' }), await load({}));
  assert.equal((await load({ yaml: 'stateDir: &dir /x\nsocket: *dir\n' })).socket, '/x');
});

test('says that a file cannot be read', async () => {
  await assert.rejects(loadConfig({ flags: {}, env: {}, cwd: directory, file: 'absent.yaml' }), {
    code: 'ERR_SDSD_CONFIG',
    message: /absent\.yaml: ENOENT/,
  });
});

test('gives clients the sockets even if the rest of the configuration is wrong', async () => {
  const env = { SECRET_TTL: 'nonsense', CA_PROVIDER: 'Citadel', SDS_SOCKET: '/s' };
  const config = await loadClientConfig({ flags: { controlSocket: 'c' }, env, cwd: '/base' });
  assert.deepEqual(config, { socket: '/s', controlSocket: '/base/c', trustDomain: 'cluster.local' });
});

test('is frozen through and through', async () => {
  const config = await load({ flags: { identities: ['web=spiffe://a/web'] } });
  for (const part of [config, config.identity, config.identities, config.identities[0], config.keys.spec, config.ca]) {
    assert.ok(Object.isFrozen(part));
  }
});

test('describes every setting once: keys, flags and variables are all different', () => {
  const names = settingList.flatMap(({ key, flag, variables }) => [key, ...(flag ? [flag] : []), ...variables]);
  assert.equal(new Set(names).size, names.length);
});

test('refuses a moment of renewal that may be the end of a certificate, or its begin', async () => {
  const cases: readonly [ratio: string, jitter: string, message: RegExp][] = [
    ['0.05', '0.05', /not greater than its jitter .*SECRET_GRACE_PERIOD_RATIO: 0\.05/],
    ['0', '0', /not greater than its jitter/],
    ['0.1', '0.2', /not greater than its jitter/],
    ['1', '0', /not less than 1/],
    ['0.97', '0.05', /not less than 1/],
  ];
  for (const [SECRET_GRACE_PERIOD_RATIO, SECRET_GRACE_PERIOD_RATIO_JITTER, message] of cases) {
    const env = { SECRET_GRACE_PERIOD_RATIO, SECRET_GRACE_PERIOD_RATIO_JITTER };
    await assert.rejects(load({ env }), { code: 'ERR_SDSD_CONFIG', message, hint: /SECRET_GRACE_PERIOD_RATIO/ });
  }
  const { certificates } = await load({ env: { SECRET_GRACE_PERIOD_RATIO: '0.06' } });
  assert.equal(certificates.gracePeriodRatio, 0.06);
});
