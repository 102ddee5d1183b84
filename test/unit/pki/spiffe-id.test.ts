import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { SdsdError } from '../../../src/errors.js';
import { parseSpiffeId, workloadIdentity } from '../../../src/pki/index.js';

describe('parseSpiffeId', () => {
  const good: [string, string, string][] = [
    ['spiffe://cluster.local/ns/default/sa/default', 'cluster.local', '/ns/default/sa/default'],
    ['spiffe://example.org', 'example.org', ''],
    ['spiffe://a_b-c.1/X/y_z/...', 'a_b-c.1', '/X/y_z/...'],
    [`spiffe://${'a'.repeat(255)}/b`, 'a'.repeat(255), '/b'],
    [`spiffe://a/${'b'.repeat(2037)}`, 'a', `/${'b'.repeat(2037)}`],
  ];
  for (const [text, trustDomain, path] of good) {
    test(`takes ${text.slice(0, 60)}`, () => {
      assert.deepEqual(parseSpiffeId(text), { trustDomain, path, text });
    });
  }

  const bad: [string, RegExp][] = [
    ['', /does not begin with spiffe:\/\//],
    ['https://a/b', /does not begin/],
    ['SPIFFE://a/b', /does not begin/],
    ['spiffe:/a/b', /does not begin/],
    ['spiffe://', /trust domain is empty/],
    ['spiffe:///ns/a', /trust domain is empty/],
    ['spiffe://Example.org/a', /trust domain holds "E"/],
    ['spiffe://a:8443/b', /trust domain holds ":"/],
    ['spiffe://user@a/b', /trust domain holds "@"/],
    ['spiffe://ä/b', /trust domain holds "ä"/],
    [`spiffe://${'a'.repeat(256)}`, /longer than 255/],
    ['spiffe://a/', /empty segment/],
    ['spiffe://a/b/', /empty segment/],
    ['spiffe://a//b', /empty segment/],
    ['spiffe://a/./b', /segment "\."/],
    ['spiffe://a/b/..', /segment "\.\."/],
    ['spiffe://a/b?c', /path holds "\?"/],
    ['spiffe://a/b#c', /path holds "#"/],
    ['spiffe://a/%41', /path holds "%"/],
    ['spiffe://a/b c', /path holds " "/],
    ['spiffe://a/b\n', /path holds "\\n"/],
    [`spiffe://a/${'b'.repeat(2038)}`, /longer than 2048/],
  ];
  for (const [text, message] of bad) {
    test(`refuses ${JSON.stringify(text.slice(0, 40))} with the reason`, () => {
      assert.throws(() => parseSpiffeId(text), { code: 'ERR_SDSD_SPIFFE_ID', message });
    });
  }

  test('takes any text apart without loss, or refuses it with ERR_SDSD_SPIFFE_ID', () => {
    const likely = fc.string({ unit: fc.constantFrom('a', 'Z', '0', '.', '-', '_', '/', '%', ':', 'é') });
    fc.assert(
      fc.property(
        fc.oneof(
          fc.string(),
          likely.map((text) => `spiffe://${text}`),
        ),
        (text) => {
          try {
            const id = parseSpiffeId(text);
            assert.equal(`spiffe://${id.trustDomain}${id.path}`, text);
            assert.match(text, /^spiffe:\/\/[a-z0-9._-]+(\/[\w.-]+)*$/);
          } catch (error) {
            assert.ok(error instanceof SdsdError && error.code === 'ERR_SDSD_SPIFFE_ID', String(error));
          }
        },
      ),
      { numRuns: 2000 },
    );
  });
});

describe('workloadIdentity', () => {
  test("is Istio's form", () => {
    assert.equal(workloadIdentity('cluster.local', 'web', 'api'), 'spiffe://cluster.local/ns/web/sa/api');
  });

  const bad: [string, string, string, RegExp][] = [
    ['', 'web', 'api', /trust domain is empty/],
    ['a', '', 'api', /namespace is empty/],
    ['a', 'web', '', /service account is empty/],
    ['a', 'web/sa/admin', 'api', /namespace holds a slash/],
    ['a', 'web', '..', /segment "\.\."/],
  ];
  for (const [trustDomain, namespace, serviceAccount, message] of bad) {
    test(`refuses ${JSON.stringify([trustDomain, namespace, serviceAccount])}`, () => {
      assert.throws(() => workloadIdentity(trustDomain, namespace, serviceAccount), {
        code: 'ERR_SDSD_SPIFFE_ID',
        message,
      });
    });
  }
});
