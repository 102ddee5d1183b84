import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { SdsdError } from '../../../src/errors.js';
import {
  parseCertificate,
  parseCertificates,
  parseCsr,
  parseSpiffeId,
  pemBlocks,
  readPrivateKey,
  verifyPath,
  workloadIdentity,
} from '../../../src/pki/index.js';

describe('messages of errors', () => {
  it('go on after "sdsd: " and "try: ": small letters first, and no stop at the end', () => {
    const faults: readonly (() => unknown)[] = [
      () => parseSpiffeId('http://a'),
      () => parseSpiffeId('spiffe://A/b'),
      () => parseSpiffeId('spiffe://a//b'),
      () => workloadIdentity('a', '', 'c'),
      () => parseCertificate(Buffer.from('x')),
      () => parseCertificates(Buffer.from('x')),
      () => parseCsr(Buffer.from('x')),
      () => readPrivateKey(Buffer.from('x')),
      () => pemBlocks(Buffer.from('-----BEGIN X-----\n')),
      () => verifyPath({ chain: [], roots: [], now: 0 }),
    ];
    for (const fault of faults) {
      assert.throws(fault, (error) => {
        assert.ok(error instanceof SdsdError, String(error));
        for (const text of [error.message, error.hint ?? '']) assert.doesNotMatch(text, /^[A-Z][a-z]|[.!]$/);
        return true;
      });
    }
  });
});
