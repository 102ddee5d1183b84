import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { describe, it } from 'node:test';
import { redact } from '../../../src/sds/redact.js';

const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
const pem = privateKey.export({ type: 'pkcs8', format: 'pem' }).toString();
const der = privateKey.export({ type: 'pkcs8', format: 'der' });
const body = pem.split('\n')[1] ?? '';
const scalar = Buffer.from(String(privateKey.export({ format: 'jwk' }).d), 'base64url');
const hexBytes = [...scalar].map((byte) => byte.toString(16).padStart(2, '0'));
const octal = [...der].map((byte) => `\\${byte.toString(8).padStart(3, '0')}`).join('');
const cEscape = (bytes: Buffer): string =>
  [...bytes]
    .map((byte) =>
      byte >= 0x20 && byte < 0x7f && byte !== 0x5c && byte !== 0x22
        ? String.fromCharCode(byte)
        : `\\${byte.toString(8).padStart(3, '0')}`,
    )
    .join('');

const spellings: readonly [name: string, text: string][] = [
  ['PEM as it is', `bad secret: ${pem} in listener`],
  ['PEM with escaped newlines', `private_key { inline_bytes: "${pem.replaceAll('\n', '\\n')}" }`],
  ['PEM cut off in the middle', `private_key { inline_bytes: "${pem.replaceAll('\n', '\\n').slice(0, 100)}`],
  ['PEM without its head', `…${pem.slice(30)}`],
  ['a line of PEM', `near ${body}`],
  ['base64 of PEM', `"inlineBytes":"${Buffer.from(pem).toString('base64')}"`],
  ['DER in octal', `inline_bytes: "${octal}"`],
  ['DER as protobuf escapes it', `inline_bytes: "${cEscape(der)}"`],
  ['the scalar in hex', `cannot use ${scalar.toString('hex')} as a key`],
  ['the scalar in hex, byte by byte', `key: ${hexBytes.join(':')}`],
  ['the scalar in hex, in pieces of eight', (scalar.toString('hex').match(/.{8}/g) ?? []).join(' ')],
  ['the scalar URL-encoded', hexBytes.map((byte) => `%${byte}`).join('')],
  ['base64 URL-encoded', encodeURIComponent(scalar.toString('base64'))],
  ['base64url', `d: ${scalar.toString('base64url')}`],
  ['base64 in pieces of four', (scalar.toString('base64').match(/.{1,4}/g) ?? []).join(' ')],
  ['base64 in pieces of eight', (scalar.toString('base64').match(/.{1,8}/g) ?? []).join(' ')],
  ['base64 letter by letter', [...scalar.toString('base64')].join(' ')],
  ['decimal bytes', [...scalar].join(', ')],
  ['SEC1 PEM', privateKey.export({ type: 'sec1', format: 'pem' }).toString()],
];

describe('redact', () => {
  for (const [name, text] of spellings) {
    it(`takes out ${name}`, () => {
      const safe = redact(text);
      assert.match(safe, /\[redacted\]/);
      for (let start = 0; start + 16 <= body.length; start += 8)
        assert.ok(!safe.includes(body.slice(start, start + 16)), safe);
      assert.ok(!/(\\[0-7]{3}){4}/.test(safe), safe);
      // Whatever the spelling, most of the key is gone.
      assert.ok(safe.replaceAll('[redacted]', '').length < 80, safe);
    });
  }

  const harmless = [
    'Failed to load private key from <inline>, Cause: error:0b000074:X.509 certificate routines:OPENSSL_internal:KEY_VALUES_MISMATCH',
    'Failed to load incomplete certificate from : certificate chain not set',
    'Unexpected SDS secret (expecting default): other',
    'type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret does not match the message-wide type URL',
    'Proto constraint validation failed (TlsCertificateValidationError.CertificateChain: value is required)',
    'no route to 127.0.0.1:15012 since 2026-12-07T10:11:12Z',
    'spiffe://cluster.local/ns/a-rather-long-namespace-name/sa/with-a-long-service-account-name',
  ];
  for (const text of harmless) it(`leaves alone: ${text.slice(0, 60)}`, () => assert.equal(redact(text), text));

  it('cuts what is longer than a person reads', () => {
    assert.ok(redact('no secret here. '.repeat(1_000)).length <= 401);
  });
});
