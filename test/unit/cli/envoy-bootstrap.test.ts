import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type EnvoyBootstrapOptions, envoyBootstrap, parseAddress } from '../../../src/cli/envoy-bootstrap.js';
import { SdsdError } from '../../../src/errors.js';
import { dig, digList } from '../../support/json.js';

const socket = '/run/sdsd/socket';

const names = (options: EnvoyBootstrapOptions): unknown => {
  const { listeners, clusters } = envoyBootstrap(options).static_resources;
  return [listeners.map((listener) => listener['name']), clusters.map((cluster) => cluster['name'])];
};

describe('an Envoy bootstrap', () => {
  test('has the listeners and clusters of its role', () => {
    const upstream = { host: '10.0.0.1', port: 8443 };
    assert.deepEqual(names({ socket, role: 'server' }), [['server'], ['sds-grpc']]);
    assert.deepEqual(names({ socket, role: 'client', upstream }), [['egress'], ['sds-grpc', 'upstream-mtls']]);
    const both = names({ socket, backend: { host: '127.0.0.1', port: 3000 } });
    assert.deepEqual(both, [
      ['server', 'egress'],
      ['sds-grpc', 'backend', 'upstream-mtls'],
    ]);
  });

  test('waits for its first secrets however long it takes, in both directions', () => {
    const text = JSON.stringify(envoyBootstrap({ socket }));
    const timeouts = text.match(/"initial_fetch_timeout":"[^"]*"/g) ?? [];
    assert.equal(timeouts.length, 4);
    assert.deepEqual(new Set(timeouts), new Set(['"initial_fetch_timeout":"0s"']));
  });

  test('trusts the whole trust domain and nobody else unless told otherwise', () => {
    const matchers = (options: EnvoyBootstrapOptions): unknown =>
      JSON.stringify(envoyBootstrap(options)).match(/"matcher":\{[^}]*\}/g);
    const domain = '"matcher":{"prefix":"spiffe://example.org/"}';
    assert.deepEqual(matchers({ socket, trustDomain: 'example.org' }), [domain, domain]);
    const one = '"matcher":{"exact":"spiffe://example.org/a"}';
    assert.deepEqual(matchers({ socket, peer: { exact: 'spiffe://example.org/a' } }), [one, one]);
  });

  test('calls its own server by default, by an address that can be called', () => {
    const { clusters } = envoyBootstrap({ socket, listen: { host: '0.0.0.0', port: 7443 } }).static_resources;
    const endpoint = digList(clusters[1], 'load_assignment', 'endpoints')[0];
    assert.deepEqual(dig(endpoint, 'lb_endpoints', 0, 'endpoint', 'address', 'socket_address'), {
      address: '127.0.0.1',
      port_value: 7443,
    });
  });

  test('resolves a DNS name, and sends it as server name', () => {
    const upstream = { host: 'server.example.org', port: 8443 };
    const cluster = envoyBootstrap({ socket, role: 'client', upstream }).static_resources.clusters[1];
    assert.equal(dig(cluster, 'type'), 'STRICT_DNS');
    assert.equal(dig(cluster, 'transport_socket', 'typed_config', 'sni'), 'server.example.org');
  });

  const refused: readonly (readonly [string, Partial<EnvoyBootstrapOptions>, RegExp])[] = [
    ['a relative socket path', { socket: './socket' }, /not absolute/],
    ['a socket path of 108 bytes', { socket: `/${'ü'.repeat(53)}x` }, /108 bytes/],
    ['a client without a server to call', { role: 'client' }, /address of an mTLS server/],
    ['a certificate under the name of the roots', { certificateName: 'ROOTCA' }, /same resource name/],
    ['an empty resource name', { certificateName: '' }, /is empty/],
    ['a trust domain as prefix of longer ones', { peer: { prefix: 'spiffe://example.org' } }, /which peers/],
    ['a peer that is not a SPIFFE ID', { peer: { exact: 'example.org' } }, /which peers/],
    ['a trust domain as one peer', { peer: { exact: 'spiffe://example.org/' } }, /which peers/],
    ['a name to listen on', { listen: { host: 'localhost', port: 8443 } }, /cannot listen on localhost/],
    ['a port beyond 65535', { adminPort: 65_536 }, /65536 is not a port/],
    ['an unknown port to connect to', { backend: { host: '127.0.0.1', port: 0 } }, /0 is not a port/],
  ];
  for (const [what, options, message] of refused) {
    test(`is refused for ${what}`, () => {
      assert.throws(
        () => envoyBootstrap({ socket, ...options }),
        (error) => error instanceof SdsdError && error.code === 'ERR_SDSD_USAGE' && message.test(error.message),
      );
    });
  }

  test('takes a socket path of 107 bytes', () => {
    assert.doesNotThrow(() => envoyBootstrap({ socket: `/${'ü'.repeat(53)}` }));
  });
});

describe('an address', () => {
  test('is host and port, or port alone', () => {
    assert.deepEqual(parseAddress('10.1.2.3:80', '--listen'), { host: '10.1.2.3', port: 80 });
    assert.deepEqual(parseAddress('db.example.org:5432', '--backend'), { host: 'db.example.org', port: 5432 });
    assert.deepEqual(parseAddress('[::1]:443', '--listen'), { host: '::1', port: 443 });
    assert.deepEqual(parseAddress('8443', '--listen'), { host: '127.0.0.1', port: 8443 });
  });

  for (const value of ['', 'host', '::1:443', 'host:', 'host:70000', 'host:-1', 'a b:1']) {
    test(`is not ${JSON.stringify(value)}`, () => {
      assert.throws(() => parseAddress(value, '--listen'), { code: 'ERR_SDSD_USAGE', message: /^--listen / });
    });
  }
});
