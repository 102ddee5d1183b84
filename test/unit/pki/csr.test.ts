import assert from 'node:assert/strict';
import { createPublicKey, generateKeyPairSync } from 'node:crypto';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { SdsdError } from '../../../src/errors.js';
import { createCsr, parseCsr, subjectPublicKeyInfo } from '../../../src/pki/index.js';
import { IDENTITY, type Kind, newKey } from './issuing.js';

for (const kind of ['P-256', 'P-384', 'P-521', 'RSA'] as const) {
  test(`a CSR for a ${kind} key is read back with its key and its URIs`, () => {
    const key = newKey(kind);
    const uriSans = [IDENTITY, 'spiffe://example.org'];
    const request = parseCsr(createCsr({ key, uriSans }));
    assert.deepEqual(request.uriSans, uriSans);
    assert.ok(request.publicKey.equals(createPublicKey(key)));
    assert.deepEqual(request.subjectPublicKeyInfo, createPublicKey(key).export({ type: 'spki', format: 'der' }));
  });
}

test('a CSR may ask for no name at all', () => {
  assert.deepEqual(parseCsr(createCsr({ key: newKey(), uriSans: [] })).uriSans, []);
});

test('the public key of every kind is encoded as OpenSSL does', () => {
  for (const kind of ['P-256', 'P-384', 'P-521', 'RSA'] satisfies (Kind | 'P-521')[]) {
    for (let round = 0; round < (kind === 'RSA' ? 1 : 50); round++) {
      const key = newKey(kind);
      assert.deepEqual(subjectPublicKeyInfo(key), createPublicKey(key).export({ type: 'spki', format: 'der' }));
    }
  }
});

test('createCsr refuses a URI outside ASCII, and a key that cannot sign', () => {
  assert.throws(() => createCsr({ key: newKey(), uriSans: ['spiffe://a/é'] }), {
    code: 'ERR_SDSD_CSR',
    message: /ASCII/,
  });
  const { privateKey } = generateKeyPairSync('ed25519');
  assert.throws(() => createCsr({ key: privateKey, uriSans: [] }), { code: 'ERR_SDSD_CSR', message: /ed25519/ });
});

describe('parseCsr', () => {
  const csr = createCsr({ key: newKey(), uriSans: [IDENTITY] });
  const smallKey = generateKeyPairSync('rsa', { modulusLength: 1024 }).privateKey;

  test('refuses a changed byte anywhere, or still reads the same request', () => {
    const good = parseCsr(csr);
    for (let at = 0; at < csr.length; at++) {
      const changed = Buffer.from(csr);
      changed[at] = (changed[at] ?? 0) ^ 0x01;
      try {
        const { uriSans, subjectPublicKeyInfo: spki } = parseCsr(changed);
        assert.deepEqual({ uriSans, spki }, { uriSans: good.uriSans, spki: good.subjectPublicKeyInfo });
      } catch (error) {
        assert.ok(error instanceof SdsdError && error.code === 'ERR_SDSD_CSR', `byte ${at}: ${String(error)}`);
      }
    }
  });

  const faults: [string, Buffer, RegExp][] = [
    ['nothing', Buffer.alloc(0), /./],
    ['text', Buffer.from('-----BEGIN CERTIFICATE REQUEST-----'), /./],
    ['a truncated request', csr.subarray(0, -1), /./],
    ['bytes after the request', Buffer.concat([csr, Buffer.from([0])]), /./],
    ['a request whose signature is another one', swapSignature(csr), /signature/],
    ['a request for an RSA key of 1024 bits', createCsr({ key: smallKey, uriSans: [IDENTITY] }), /1024 bits/],
  ];
  for (const [name, der, message] of faults) {
    test(`refuses ${name}`, () => {
      assert.throws(() => parseCsr(der), { code: 'ERR_SDSD_CSR', message });
    });
  }

  test('answers any bytes with an ERR_SDSD_CSR', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
        assert.throws(() => parseCsr(Buffer.from(bytes)), { code: 'ERR_SDSD_CSR' });
      }),
    );
  });

  test('answers a mutated request with an ERR_SDSD_CSR or a right answer', () => {
    fc.assert(
      fc.property(fc.nat(csr.length - 1), fc.nat(4), fc.uint8Array({ maxLength: 4 }), (at, gone, inserted) => {
        const mutated = Buffer.concat([csr.subarray(0, at), Buffer.from(inserted), csr.subarray(at + gone)]);
        try {
          assert.deepEqual(parseCsr(mutated).uriSans, [IDENTITY]);
        } catch (error) {
          assert.ok(error instanceof SdsdError && error.code === 'ERR_SDSD_CSR', String(error));
        }
      }),
    );
  });
});

/** The same request under the signature of another key. */
function swapSignature(csr: Buffer): Buffer {
  const other = createCsr({ key: newKey(), uriSans: [IDENTITY] });
  const from = csr.length - 64;
  return Buffer.concat([csr.subarray(0, from), other.subarray(other.length - 64)]);
}
