import assert from 'node:assert/strict';
import { generateKeyPairSync, type KeyObject } from 'node:crypto';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { SdsdError } from '../../../src/errors.js';
import {
  encodePrivateKey,
  generatePrivateKey,
  type KeyAlgorithm,
  pemBlocks,
  readPrivateKey,
  toPem,
} from '../../../src/pki/index.js';
import { newKey } from './issuing.js';

const algorithms: [string, KeyAlgorithm, string][] = [
  ['ECDSA P-256', { kind: 'ecdsa', curve: 'P-256' }, 'EC PRIVATE KEY'],
  ['ECDSA P-384', { kind: 'ecdsa', curve: 'P-384' }, 'EC PRIVATE KEY'],
  ['RSA 2048', { kind: 'rsa', bits: 2048 }, 'RSA PRIVATE KEY'],
  ['RSA 3072', { kind: 'rsa', bits: 3072 }, 'RSA PRIVATE KEY'],
];

for (const [name, algorithm, traditionalLabel] of algorithms) {
  test(`a new ${name} key is read back from both of its encodings`, async () => {
    const key = await generatePrivateKey(algorithm);
    for (const [format, label] of [
      ['pkcs8', 'PRIVATE KEY'],
      ['traditional', traditionalLabel],
    ] as const) {
      const pem = encodePrivateKey(key, format);
      assert.deepEqual(
        pemBlocks(pem).map((block) => block.label),
        [label],
      );
      assert.ok(readPrivateKey(pem).equals(key));
    }
    const expected = algorithm.kind === 'rsa' ? algorithm.bits : algorithm.curve;
    const details = key.asymmetricKeyDetails;
    const curves: Record<string, string> = { prime256v1: 'P-256', secp384r1: 'P-384' };
    assert.equal(details?.modulusLength ?? curves[details?.namedCurve ?? ''], expected);
  });
}

const ecParameters = toPem('EC PARAMETERS', Buffer.from('06082a8648ce3d030107', 'hex'));

describe('readPrivateKey', () => {
  test('takes an EC PARAMETERS block before the key, and certificates beside it', () => {
    const key = newKey();
    const certificate = toPem('CERTIFICATE', Buffer.alloc(9));
    const pem = Buffer.concat([Buffer.from(ecParameters + certificate), encodePrivateKey(key, 'traditional')]);
    assert.ok(readPrivateKey(pem).equals(key));
  });

  test('takes P-521, CRLF, and a key without a final newline', () => {
    const key = newKey('P-521');
    const pem = encodePrivateKey(key, 'pkcs8').toString();
    assert.ok(readPrivateKey(Buffer.from(pem.replaceAll('\n', '\r\n').trimEnd())).equals(key));
  });

  const pkcs8 = (key: KeyObject): string => toPem('PRIVATE KEY', key.export({ type: 'pkcs8', format: 'der' }));
  const sec1 = (key: KeyObject): string => encodePrivateKey(key, 'traditional').toString();
  const secret = { cipher: 'aes-256-cbc', passphrase: 'secret', format: 'pem' } as const;
  const refused: [string, string | Buffer, RegExp][] = [
    ['parameters without a key', ecParameters, /no private key/],
    ['an empty file', '', /no private key/],
    ['two keys', pkcs8(newKey()) + pkcs8(newKey()), /more than one/],
    ['an encrypted PKCS#8 key', newKey().export({ type: 'pkcs8', ...secret }), /encrypted with a password/],
    ['an encrypted SEC1 key', newKey().export({ type: 'sec1', ...secret }), /encrypted with a password/],
    ['an encrypted PKCS#1 key', newKey('RSA').export({ type: 'pkcs1', ...secret }), /encrypted with a password/],
    ['Ed25519', pkcs8(generateKeyPairSync('ed25519').privateKey), /Ed25519.*mutual TLS/],
    ['X25519', pkcs8(generateKeyPairSync('x25519').privateKey), /kind x25519/],
    ['RSA-PSS', pkcs8(generateKeyPairSync('rsa-pss', { modulusLength: 2048 }).privateKey), /kind rsa-pss/],
    ['RSA with 1024 bits', pkcs8(generateKeyPairSync('rsa', { modulusLength: 1024 }).privateKey), /1024 bits/],
    ['P-224', pkcs8(newKey('P-224')), /secp224r1/],
    ['a PKCS#8 EC key labelled as PKCS#1', pkcs8(newKey()).replaceAll('PRIVATE', 'RSA PRIVATE'), /another form/],
    ['a PKCS#8 RSA key labelled as PKCS#1', pkcs8(newKey('RSA')).replaceAll('PRIVATE', 'RSA PRIVATE'), /another form/],
    ['a SEC1 key labelled as PKCS#8', sec1(newKey()).replaceAll('EC PRIVATE', 'PRIVATE'), /another form/],
    ['garbage', toPem('PRIVATE KEY', Buffer.alloc(40, 7)), /damaged/],
    ['an OpenSSH key', toPem('OPENSSH PRIVATE KEY', Buffer.alloc(40, 7)), /OPENSSH PRIVATE KEY/],
  ];
  for (const [name, pem, message] of refused) {
    test(`refuses ${name} with the reason and a cure`, () => {
      assert.throws(
        () => readPrivateKey(Buffer.from(pem)),
        (error) =>
          error instanceof SdsdError &&
          error.code === 'ERR_SDSD_KEY' &&
          message.test(error.message) &&
          error.hint !== undefined,
      );
    });
  }

  test('never shows bytes of the key, however it is damaged', () => {
    const good = encodePrivateKey(newKey(), 'traditional');
    fc.assert(
      fc.property(fc.nat(good.length - 1), fc.nat(60), fc.uint8Array({ maxLength: 4 }), (at, gone, inserted) => {
        const pem = Buffer.concat([good.subarray(0, at), Buffer.from(inserted), good.subarray(at + gone)]);
        try {
          readPrivateKey(pem);
        } catch (error) {
          assert.ok(error instanceof SdsdError);
          const shown = `${error.message} ${error.hint} ${String(error.cause)}`;
          for (const line of good.toString().split('\n').slice(1, -2)) assert.ok(!shown.includes(line.slice(0, 16)));
        }
      }),
    );
  });
});
