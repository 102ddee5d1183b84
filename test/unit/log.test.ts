import assert from 'node:assert/strict';
import { describe, it, test } from 'node:test';
import { SdsdError } from '../../src/errors.js';
import {
  ClientLog,
  createLogger,
  type LogFields,
  type LogLevel,
  printable,
  printableJson,
  silentLogger,
} from '../../src/log.js';
import { VirtualClock } from '../../src/testing/virtual-clock.js';

function written(
  log: (logger: ReturnType<typeof createLogger>) => void,
  level: LogLevel = 'debug',
  color = false,
): string {
  let text = '';
  const stream = {
    write: (part: string) => {
      text += part;
    },
  };
  log(createLogger({ level, stream, clock: new VirtualClock(Date.UTC(2030, 0, 1)), color }));
  return text;
}

const line = (fields: LogFields, message = 'm'): string =>
  written((log) => log.info(message, fields))
    .replace(/^2030-01-01T00:00:00\.000Z info {2}/, '')
    .replace(/\n$/, '');

test('writes time, level, message and fields in one line', () => {
  assert.equal(
    written((log) => log.warn('renewal failed', { name: 'default', failures: 3, left: undefined })),
    '2030-01-01T00:00:00.000Z warn  renewal failed name=default failures=3\n',
  );
});

test('quotes and escapes values so that one entry stays one line', () => {
  const cases: readonly [value: unknown, shown: string][] = [
    ['plain', 'plain'],
    ['', '""'],
    ['two words', '"two words"'],
    ['a=b', '"a=b"'],
    ['say "hi"', '"say \\"hi\\""'],
    ['a\nb\r\tc', 'a\\nb\\r\\tc'],
    ['\u001b[31mred', '\\u001b[31mred'],
    ['\u202ecilam', '\\u202ecilam'],
    [null, 'null'],
    [12n, '12'],
    [new Date(0), '1970-01-01T00:00:00.000Z'],
    [['a', 1], '"[\\"a\\",1]"'],
    [Buffer.from('secret'), '"<6 bytes>"'],
    [{ key: Buffer.from('secret') }, '"{\\"key\\":\\"<bytes>\\"}"'],
    [{ key: new Uint8Array([1, 2]) }, '"{\\"key\\":\\"<bytes>\\"}"'],
    [new Error('plain'), 'plain'],
    [new SdsdError('ERR_SDSD_CA', 'no answer'), '"ERR_SDSD_CA: no answer"'],
    [Object.assign(new Error('x'), { code: 'ENOENT' }), '"ENOENT: x"'],
  ];
  for (const [value, shown] of cases) assert.equal(line({ v: value }), `m v=${shown}`);
  assert.equal(line({}, 'a\nb'), 'a\\nb');
});

test('withholds private keys, whatever brought them there', () => {
  const key = '-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE\n-----END EC PRIVATE KEY-----\n';
  assert.doesNotMatch(line({ v: key, list: [key], error: new Error(`bad: ${key}`) }, key), /MHcCAQEE/);
  assert.equal(printable('-----BEGIN PRIVATE KEY-----\nMHcC'), '<private key withheld>');
});

test('drops what is below its level', () => {
  const text = written((log) => {
    log.debug('one');
    log.info('two');
    log.warn('three');
    log.error('four');
  }, 'warn');
  assert.deepEqual(text.match(/one|two|three|four/g), ['three', 'four']);
});

test('colours the level when it may', () => {
  const text = written((log) => log.error('x'), 'info', true);
  assert.ok(text.includes('\u001b[31merror\u001b[0m x'), text);
});

test('never throws', () => {
  const circular: Record<string, unknown> = {};
  circular['self'] = circular;
  const hostile = {
    toJSON() {
      throw new Error('no');
    },
  };
  assert.equal(line({ circular, hostile }), 'm circular="<cannot be shown>" hostile="<cannot be shown>"');
  const broken = {
    write() {
      throw new Error('EPIPE');
    },
  };
  const clock = { now: () => Number.NaN };
  createLogger({ level: 'debug', stream: broken, clock, color: false }).error('x');
  silentLogger.error('x');
});

describe('what clients cause in the log', () => {
  const lines: string[] = [];
  const clock = new VirtualClock();
  const stream = { write: (line: string) => lines.push(line) };
  const log = new ClientLog(createLogger({ level: 'info', stream, clock, color: false }), clock);

  it('is limited for each client, and for all together, and counted beyond that', async () => {
    for (let i = 0; i < 100; i++) log.warn('one', 'no', {});
    assert.equal(lines.length, 20);
    log.warn('two', 'no', {});
    assert.match(lines.at(-1) ?? '', /linesLeftOut=80/);
    for (let client = 0; client < 300; client++) log.warn(`client ${client}`, 'no', {});
    assert.equal(lines.length, 200);
    await clock.advance(10_000);
    lines.length = 0;
    log.warn('one', 'no', {});
    log.warn('one', 'no', {});
    assert.equal(lines.length, 1);
    assert.match(lines[0] ?? '', /linesLeftOut=121/);
  });
});

describe('printableJson', () => {
  it('escapes what would turn or hide text, and says the same', () => {
    const value = { 'k\u202e': ['\u0085 \u009b31m', 'a\u200b\u2066\ufeff\u{e0041}b', 'plain ü 🦊', '\ud800'] };
    const text = printableJson(value, 2);
    assert.ok(!/[^\n\P{Cc}]|[\p{Cf}\p{Cs}]/u.test(text), text);
    assert.deepEqual(JSON.parse(text), value);
    assert.ok(text.includes('plain ü 🦊'));
  });
});
