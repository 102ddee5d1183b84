import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { formatDuration, parseDuration } from '../../../src/config/index.js';

test('reads the durations that Go reads', () => {
  const cases: readonly [text: string, ms: number][] = [
    ['0', 0],
    ['24h', 86_400_000],
    ['1h30m', 5_400_000],
    ['300ms', 300],
    ['1.5s', 1_500],
    ['.5s', 500],
    ['1.1h', 3_960_000],
    ['-2m', -120_000],
    ['+2m', 120_000],
    ['1h1m1s1ms', 3_661_001],
    ['2500us', 3],
    ['2500µs', 3],
    ['999999ns', 1],
    ['100ns', 0],
  ];
  for (const [text, ms] of cases) assert.equal(parseDuration(text), ms, text);
});

test('says what is wrong with what is not a duration', () => {
  const cases: readonly [text: string, why: RegExp][] = [
    ['5', /needs a unit/],
    ['1.5', /needs a unit/],
    ['1d', /24h/],
    ['', /not a duration/],
    ['h', /not a duration/],
    ['1 h', /not a duration/],
    ['1h-1m', /not a duration/],
    ['1e3s', /not a duration/],
    ['.s', /not a duration/],
    ['9999999999999999h', /too long/],
  ];
  for (const [text, why] of cases) assert.throws(() => parseDuration(text), why, text);
});

test('reads what it writes', () => {
  fc.assert(
    fc.property(fc.integer({ min: -1e13, max: 1e13 }), (ms) => {
      assert.equal(parseDuration(formatDuration(ms)), ms);
    }),
  );
});

test('writes no parts that are zero', () => {
  const cases: readonly [ms: number, text: string][] = [
    [0, '0s'],
    [300, '300ms'],
    [5_400_000, '1h30m'],
    [86_400_000, '24h'],
    [-1_001, '-1s1ms'],
  ];
  for (const [ms, text] of cases) assert.equal(formatDuration(ms), text);
});
