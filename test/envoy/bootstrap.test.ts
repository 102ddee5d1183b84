import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type EnvoyBootstrapOptions, envoyBootstrap, renderEnvoyBootstrap } from '../../src/cli/envoy-bootstrap.js';
import { type Json, toYaml } from '../../src/cli/yaml.js';
import { envoyReleases, startEnvoy, validateEnvoyConfig } from '../support/envoy.js';
import { dig, digList } from '../support/json.js';

const upstream = { host: '127.0.0.1', port: 9443 };
const cases: readonly (readonly [string, Partial<EnvoyBootstrapOptions>])[] = [
  ['by default', {}],
  ['with delta SDS', { api: 'delta' }],
  ['as server with a backend', { role: 'server', backend: { host: 'localhost', port: 3000 } }],
  ['as client of a DNS name', { role: 'client', upstream: { host: 'localhost', port: 9443 } }],
  ['with a connection for each request', { role: 'client', upstream, connectionPerRequest: true }],
  ['on IPv6', { listen: { host: '::1', port: 0 }, upstream: { host: '::1', port: 9443 } }],
  ['with names that need quotes', { nodeId: 'true', certificateName: '*: "x"\n', rootsName: '0x10' }],
];

const { releases, skip } = await envoyReleases();
test('Envoy binaries to test with', { skip }, () => assert.notEqual(releases.length, 0));

for (const { version, binary } of releases) {
  describe(`Envoy ${version}`, () => {
    for (const [what, options] of cases) {
      test(`takes the bootstrap ${what} without a warning`, async () => {
        const yaml = renderEnvoyBootstrap({ socket: '/tmp/sdsd-test/socket', ...options });
        assert.equal(await validateEnvoyConfig(binary, yaml), undefined);
      });
    }

    test('reads exactly what the YAML writer was given', async () => {
      const strings = [
        '',
        '~',
        'no',
        '1e3',
        '0x1f',
        '1_000',
        '.5',
        '+1',
        '2030-01-01',
        '12:30:00',
        '=',
        '<<',
        '!x',
        '&a',
      ];
      const quoted = [
        '%',
        '- a',
        'a: b',
        'a #b',
        ' a ',
        '{a}',
        '[a]',
        '"a"',
        "'a'",
        '|',
        '>',
        '\\n',
        'a\nb\n',
        '\t',
        '\u007f',
      ];
      const wide = ['ü', '\u0085', '\u2028', '\ufeff', '😀', '\u0001'];
      const all = [...strings, ...quoted, ...wide];
      const metadata: Json = {
        all,
        keys: Object.fromEntries(all.map((text) => [text, { text }])),
        numbers: [0, 65_535],
        not: [true, null, {}, []],
      };
      const base = envoyBootstrap({
        socket: '/tmp/sdsd-test/socket',
        role: 'server',
        listen: { host: '127.0.0.1', port: 0 },
        adminPort: 0,
      });
      await using envoy = await startEnvoy({
        binary,
        bootstrap: toYaml({ ...base, node: { ...base.node, metadata } }),
      });
      const configs = digList(await envoy.admin('/config_dump'), 'configs');
      const read = configs.map((config) => dig(config, 'bootstrap', 'node', 'metadata')).find(Boolean);
      assert.deepEqual(read, metadata);
    });
  });
}
