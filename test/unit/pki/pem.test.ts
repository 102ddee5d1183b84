import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { SdsdError } from '../../../src/errors.js';
import { joinPem, pemBlocks, toPem } from '../../../src/pki/index.js';

const one = toPem('CERTIFICATE', Buffer.alloc(100, 1));
const two = toPem('CERTIFICATE', Buffer.alloc(70, 2));
const bare = (text: string): string => text.trimEnd();

describe('pemBlocks', () => {
  const inputs: [string, string | Buffer][] = [
    ['two blocks as they are written', one + two],
    ['no newline at the end', one + bare(two)],
    ['an END marker fused with the next BEGIN', bare(one) + two],
    ['CRLF line ends', (one + two).replaceAll('\n', '\r\n')],
    ['CR line ends', (one + two).replaceAll('\n', '\r')],
    ['indentation by spaces and tabs', (one + two).replace(/^/gm, ' \t  ')],
    ['a UTF-8 byte order mark', `\ufeff${one}${two}`],
    ['comments and names around the blocks', `# roots\nsubject=CN = a\n${one}\nissuer: b\n${two}the end\n`],
    ['a commented-out marker', `# -----BEGIN CERTIFICATE-----\n${one}${two}`],
    ['empty lines in a block', (one + two).replaceAll('\n', '\n\n')],
    ['one long line of base64', (one + two).replace(/([A-Za-z0-9+/]{64})\n/g, '$1')],
    [
      'the byte 0xE9 outside the blocks',
      Buffer.concat([Buffer.from([0xe9, 10]), Buffer.from(one), Buffer.from([0xe9, 10]), Buffer.from(two)]),
    ],
  ];
  for (const [name, input] of inputs) {
    test(`takes ${name}`, () => {
      assert.deepEqual(
        pemBlocks(Buffer.from(input)).map(({ label, der }) => [label, der.length, der[0]]),
        [
          ['CERTIFICATE', 100, 1],
          ['CERTIFICATE', 70, 2],
        ],
      );
    });
  }

  const broken: [string, string, RegExp][] = [
    ['a block without its END', one + two.slice(0, 60), /block 2 \(CERTIFICATE\) is cut off/],
    ['a block that another one interrupts', `${one.slice(0, 90)}\n${two}`, /block 1 .*begins inside it/],
    [
      'a block that ends under another label',
      one.replace('END CERTIFICATE', 'END X509 CRL'),
      /block 1 .*ends as X509 CRL/,
    ],
    ['an END without a BEGIN', `${one}MIIB\n-----END CERTIFICATE-----\n`, /block 2 .*no BEGIN/],
    ['a block whose base64 lacks a character', two.replace('AgI', 'Ag'), /block 1 .*base64/],
    ['a block with a strange character', two.replace('AgI', 'Ag*'), /block 1 .*base64/],
    ['an empty block', '-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n', /block 1 .*empty/],
  ];
  for (const [name, input, message] of broken) {
    test(`refuses ${name}`, () => {
      assert.throws(() => pemBlocks(Buffer.from(input)), { code: 'ERR_SDSD_PEM', message });
    });
  }

  test('finds nothing in text without markers', () => {
    assert.deepEqual(pemBlocks(Buffer.from('hello\n')), []);
    assert.deepEqual(pemBlocks(Buffer.alloc(0)), []);
  });

  test('keeps the header fields of a block', () => {
    const pem = one.replace('-----\n', '-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,\n 00FF\n\n');
    const [block] = pemBlocks(Buffer.from(pem));
    assert.deepEqual(block?.headers, { 'Proc-Type': '4,ENCRYPTED', 'DEK-Info': 'AES-256-CBC,00FF' });
    assert.equal(block?.der.length, 100);
  });

  test('reads what toPem writes, whatever stands around it', () => {
    const noise = fc.string().filter((text) => !text.includes('-----'));
    fc.assert(
      fc.property(fc.uint8Array({ minLength: 1, maxLength: 300 }), noise, noise, (bytes, before, after) => {
        const pem = `${before}\n${toPem('X509 CRL', Buffer.from(bytes))}${after}`;
        assert.deepEqual(pemBlocks(Buffer.from(pem)), [{ label: 'X509 CRL', der: Buffer.from(bytes) }]);
      }),
    );
  });

  test('answers mutated PEM with blocks or an ERR_SDSD_PEM, never with another exception', () => {
    const good = Buffer.from(one + two);
    fc.assert(
      fc.property(fc.nat(good.length - 1), fc.nat(80), fc.uint8Array({ maxLength: 8 }), (at, gone, inserted) => {
        const mutated = Buffer.concat([good.subarray(0, at), Buffer.from(inserted), good.subarray(at + gone)]);
        try {
          pemBlocks(mutated);
        } catch (error) {
          assert.ok(error instanceof SdsdError && error.code === 'ERR_SDSD_PEM');
        }
      }),
    );
  });
});

test('toPem writes lines of 64 columns and one final newline', () => {
  const lines = toPem('CERTIFICATE', Buffer.alloc(49)).split('\n');
  assert.deepEqual(
    lines.map((line) => line.length),
    [27, 64, 4, 25, 0],
  );
});

describe('joinPem', () => {
  const joins: [string, (string | Buffer)[]][] = [
    ['parts that end in a newline', [one, two]],
    ['parts without one', [bare(one), bare(two)]],
    ['parts with too many', [`\n${one}\n\n`, '', `${two}\r\n\r\n`]],
    ['a part that is fused inside', [bare(one) + two]],
    ['a part with empty lines inside', [`${one}\n\n${two}`]],
    ['buffers', [Buffer.from(bare(one)), Buffer.from(two)]],
  ];
  for (const [name, parts] of joins) {
    test(`puts exactly one newline between and after ${name}`, () => {
      assert.equal(joinPem(parts).toString(), one + two);
    });
  }

  test('gives a string for strings and a buffer as soon as one part is a buffer', () => {
    assert.equal(typeof joinPem([one]), 'string');
    assert.ok(Buffer.isBuffer(joinPem([one, Buffer.from(two)])));
  });
});
