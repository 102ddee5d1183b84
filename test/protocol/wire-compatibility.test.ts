/** Our .proto files against Envoy's own, as the package @grpc/grpc-js-xds ships them. */
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { loadSync, type MessageTypeDefinition, type PackageDefinition } from '@grpc/proto-loader';
import { SDS_SERVICE, sdsMethod } from '../../src/rpc/index.js';

const OPTIONS = { longs: String, enums: String, oneofs: true } as const;
const FILES = ['envoy/service/secret/v3/sds.proto', 'envoy/extensions/transport_sockets/tls/v3/secret.proto'];

function official(): PackageDefinition {
  const require = createRequire(import.meta.url);
  const deps = join(dirname(require.resolve('@grpc/grpc-js-xds/package.json')), 'deps');
  const includeDirs = ['envoy-api', 'xds', 'googleapis', 'protoc-gen-validate'].map((name) => join(deps, name));
  return loadSync(FILES, { ...OPTIONS, includeDirs });
}

function ours(): PackageDefinition {
  return loadSync(FILES, { ...OPTIONS, includeDirs: [fileURLToPath(new URL('../../proto/', import.meta.url))] });
}

const bytes = Buffer.from('-----BEGIN\0\xff', 'latin1');
const status = { code: 13, message: 'refused' };
const any = { type_url: 'type.googleapis.com/x', value: bytes };
const node = { id: 'n', cluster: 'c', userAgentName: 'envoy' };
const discovery = 'envoy.service.discovery.v3';
const tls = 'envoy.extensions.transport_sockets.tls.v3';

/** A message with every field of ours set. */
const samples: readonly [type: string, message: object][] = [
  [
    `${discovery}.DiscoveryRequest`,
    {
      versionInfo: 'v',
      node,
      resourceNames: ['a', 'b'],
      typeUrl: 't',
      responseNonce: 'r',
      errorDetail: status,
    },
  ],
  [
    `${discovery}.DiscoveryResponse`,
    { versionInfo: 'v', resources: [any, any], typeUrl: 't', nonce: 'n', controlPlane: { identifier: 'i' } },
  ],
  [
    `${discovery}.DeltaDiscoveryRequest`,
    {
      node,
      typeUrl: 't',
      resourceNamesSubscribe: ['a'],
      resourceNamesUnsubscribe: ['b'],
      initialResourceVersions: { a: '1', b: '2' },
      responseNonce: 'r',
      errorDetail: status,
    },
  ],
  [
    `${discovery}.DeltaDiscoveryResponse`,
    {
      systemVersionInfo: 's',
      resources: [{ name: 'a', version: '1', resource: any }],
      typeUrl: 't',
      nonce: 'n',
      removedResources: ['b'],
      controlPlane: { identifier: 'i' },
    },
  ],
  [
    `${tls}.Secret`,
    {
      name: 'a',
      tlsCertificate: { certificateChain: { inlineBytes: bytes }, privateKey: { filename: '/f' } },
    },
  ],
  [`${tls}.Secret`, { name: 'a', validationContext: { trustedCa: { inlineString: 's' } } }],
];

function message(definitions: PackageDefinition, type: string): MessageTypeDefinition<object, object> {
  const definition = definitions[type];
  assert.ok(definition && 'serialize' in definition, type);
  return definition as MessageTypeDefinition<object, object>;
}

/** Without the names of the oneof members, which proto-loader adds. */
function plain(value: unknown): unknown {
  return JSON.parse(JSON.stringify(value, (key, field) => (key === 'specifier' || key === 'type' ? undefined : field)));
}

describe('our .proto files', () => {
  const theirs = official();
  const own = ours();
  for (const [type, sample] of samples) {
    it(`write and read ${type} as Envoy does (${Object.keys(sample).join(', ')})`, () => {
      const [a, b] = [message(own, type), message(theirs, type)];
      assert.deepEqual(plain(b.deserialize(a.serialize(sample))), plain(sample));
      assert.deepEqual(plain(a.deserialize(b.serialize(sample))), plain(sample));
      assert.deepEqual(a.serialize(sample), b.serialize(sample));
    });
  }

  it('name the methods of the service as Envoy does', () => {
    const [a, b] = [own[SDS_SERVICE], theirs[SDS_SERVICE]] as Record<
      string,
      { path: string; requestStream: boolean }
    >[];
    assert.ok(a && b);
    assert.deepEqual(Object.keys(a).sort(), Object.keys(b).sort());
    for (const name of ['StreamSecrets', 'DeltaSecrets', 'FetchSecrets'] as const) {
      assert.equal(a[name]?.path, b[name]?.path);
      assert.equal(a[name]?.path, sdsMethod(name));
      assert.equal(a[name]?.requestStream, b[name]?.requestStream);
    }
  });

  it('skip fields of Envoy that they do not know', () => {
    const type = `${discovery}.DiscoveryRequest`;
    const full = { node: { id: 'n', metadata: { fields: { a: { stringValue: 'x' } } }, extensions: [{ name: 'e' }] } };
    assert.deepEqual(plain(message(own, type).deserialize(message(theirs, type).serialize(full))), {
      node: { id: 'n' },
    });
  });
});
