import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { SdsdError } from '../../../src/errors.js';
import {
  joinPem,
  parseCertificate,
  parseCertificates,
  pemBlocks,
  randomSerialNumber,
  toPem,
} from '../../../src/pki/index.js';
import { HOUR, IDENTITY, intermediate, leaf, NOW, root } from './issuing.js';

const ca = root('Root');
const middle = intermediate('Intermediate', ca);
const end = leaf(middle);

describe('parseCertificate', () => {
  test('gives the fields of a leaf', () => {
    const { certificate } = end;
    assert.equal(certificate.notBefore, NOW - HOUR);
    assert.equal(certificate.notAfter, NOW + HOUR);
    assert.deepEqual(certificate.uriSans, [IDENTITY]);
    assert.equal(certificate.isCa, false);
    assert.equal(certificate.selfSigned, false);
    assert.equal(certificate.serialNumber, certificate.x509.serialNumber);
    assert.equal(certificate.fingerprint, createHash('sha256').update(certificate.der).digest('hex'));
    assert.equal(certificate.pem, toPem('CERTIFICATE', certificate.der));
    assert.ok(Object.isFrozen(certificate));
  });

  test('tells a root from an intermediate', () => {
    assert.deepEqual([ca.certificate.isCa, ca.certificate.selfSigned], [true, true]);
    assert.deepEqual([middle.certificate.isCa, middle.certificate.selfSigned], [true, false]);
  });

  test('does not take a certificate that only bears its own name for self-signed', () => {
    const impostor = intermediate('Root', ca);
    assert.equal(impostor.certificate.x509.subject, impostor.certificate.x509.issuer);
    assert.equal(impostor.certificate.selfSigned, false);
  });

  for (const [name, time] of [
    ['UTCTime', Date.UTC(2049, 11, 31, 23, 59, 59)],
    ['GeneralizedTime', Date.UTC(2050, 0, 1)],
    ['the end of all certificates', Date.UTC(9999, 11, 31, 23, 59, 59)],
  ] as const) {
    test(`reads times as written: ${name}`, () => {
      const { certificate } = leaf(ca, { notAfter: time });
      assert.equal(certificate.notAfter, time);
      assert.equal(Date.parse(certificate.x509.validTo), time);
    });
  }

  test('answers a mutated certificate with ERR_SDSD_CERTIFICATE or another certificate', () => {
    const good = end.certificate.der;
    fc.assert(
      fc.property(fc.nat(good.length - 1), fc.nat(4), fc.uint8Array({ maxLength: 4 }), (at, gone, inserted) => {
        const mutated = Buffer.concat([good.subarray(0, at), Buffer.from(inserted), good.subarray(at + gone)]);
        try {
          assert.deepEqual(parseCertificate(mutated).der, mutated);
        } catch (error) {
          assert.ok(error instanceof SdsdError && error.code === 'ERR_SDSD_CERTIFICATE', String(error));
        }
      }),
      { numRuns: 500 },
    );
  });
});

describe('parseCertificates', () => {
  const serials = (pem: string): string[] =>
    parseCertificates(Buffer.from(pem)).map(({ serialNumber }) => serialNumber);
  const chain = [end, middle, ca].map(({ certificate }) => certificate);
  const expected = chain.map(({ serialNumber }) => serialNumber);

  test('gives all certificates of a bundle, not the first one alone', () => {
    assert.deepEqual(serials(joinPem(chain.map(({ pem }) => pem))), expected);
  });

  test('takes fused blocks', () => {
    assert.deepEqual(serials(chain.map(({ pem }) => pem.trimEnd()).join('')), expected);
  });

  test("takes the labels X509 CERTIFICATE and TRUSTED CERTIFICATE, without OpenSSL's trust settings", () => {
    const trust = Buffer.from('300c300a06082b06010505070301', 'hex');
    const pem = [
      toPem('X509 CERTIFICATE', end.certificate.der),
      toPem('TRUSTED CERTIFICATE', Buffer.concat([middle.certificate.der, trust])),
      toPem('TRUSTED CERTIFICATE', ca.certificate.der),
    ].join('');
    assert.deepEqual(serials(pem), expected);
    assert.deepEqual(
      parseCertificates(Buffer.from(pem)).map(({ pem: own }) => pemBlocks(Buffer.from(own))[0]?.label),
      ['CERTIFICATE', 'CERTIFICATE', 'CERTIFICATE'],
    );
  });

  test('skips blocks of other kinds', () => {
    assert.deepEqual(serials(`${toPem('X509 CRL', Buffer.alloc(5))}${end.certificate.pem}`), [
      end.certificate.serialNumber,
    ]);
  });

  test('names the block that is no certificate', () => {
    const pem = `${end.certificate.pem}${toPem('CERTIFICATE', Buffer.alloc(50, 3))}`;
    assert.throws(() => serials(pem), { code: 'ERR_SDSD_CERTIFICATE', message: /block 2 \(CERTIFICATE\)/ });
  });

  test('refuses two certificates in one block', () => {
    const pem = toPem('CERTIFICATE', Buffer.concat([end.certificate.der, middle.certificate.der]));
    assert.throws(() => serials(pem), { code: 'ERR_SDSD_CERTIFICATE' });
  });

  test('refuses PEM data without a certificate', () => {
    assert.throws(() => serials('# nothing yet\n'), { code: 'ERR_SDSD_PEM', message: /no certificate/ });
  });

  test('answers garbage in a TRUSTED CERTIFICATE with ERR_SDSD_CERTIFICATE', () => {
    fc.assert(
      fc.property(fc.uint8Array({ minLength: 1, maxLength: 40 }), (bytes) => {
        assert.throws(() => serials(toPem('TRUSTED CERTIFICATE', Buffer.from(bytes))), {
          code: 'ERR_SDSD_CERTIFICATE',
        });
      }),
    );
  });
});

describe('issued certificates', () => {
  test('have positive serial numbers of 128 bits that differ', () => {
    const numbers = Array.from({ length: 200 }, () => leaf(ca).certificate.serialNumber);
    assert.equal(new Set(numbers).size, 200);
    for (const number of numbers) assert.match(number, /^(?!00)([0-9A-F]{2}){1,16}$/);
    assert.ok(numbers.some((number) => number.length === 32 && number >= '8'));
  });

  test('have whatever serial number the random bytes make, but never zero', () => {
    const serialNumber = Buffer.from(`00ff${'00'.repeat(14)}`, 'hex');
    assert.equal(leaf(ca, { serialNumber }).certificate.serialNumber, `FF${'00'.repeat(14)}`);
    assert.deepEqual(randomSerialNumber(Buffer.alloc), Buffer.from([1]));
  });

  test('cannot have times that X.509 cannot write', () => {
    for (const notAfter of [Number.NaN, -1, Date.UTC(10_000, 0, 1)]) {
      assert.throws(() => leaf(ca, { notAfter }), { code: 'ERR_SDSD_CERTIFICATE', message: /1970 to 9999/ });
    }
  });
});
