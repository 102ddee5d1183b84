import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Json, toYaml } from '../../../src/cli/yaml.js';

const scalars: readonly (readonly [Json, string])[] = [
  ['word', 'word'],
  ['/run/sdsd/socket', '/run/sdsd/socket'],
  ['type.googleapis.com/envoy.config.v3.X', 'type.googleapis.com/envoy.config.v3.X'],
  ['0.1s', '0.1s'],
  [8080, '8080'],
  [true, 'true'],
  [null, 'null'],
  [[], '[]'],
  [{}, '{}'],
  // What YAML would read as something that is not a string.
  ['', '""'],
  ['true', '"true"'],
  ['No', '"No"'],
  ['y', '"y"'],
  ['null', '"null"'],
  ['~', '"~"'],
  ['8080', '"8080"'],
  ['1e3', '"1e3"'],
  ['0x1f', '"0x1f"'],
  ['.inf', '".inf"'],
  ['12:30', '"12:30"'],
  ['2030-01-01', '"2030-01-01"'],
  // What would end the string, or begin something else.
  ['@type', '"@type"'],
  ['*', '"*"'],
  ['- item', '"- item"'],
  ['key: value', '"key: value"'],
  ['spiffe://a/b', '"spiffe://a/b"'],
  ['word # no comment', '"word # no comment"'],
  [' spaced ', '" spaced "'],
  ['two\nlines\t"quoted" \\', '"two\\nlines\\t\\"quoted\\" \\\\"'],
  ['---', '"---"'],
  ['ü\u0085\u2028', '"\\u00fc\\u0085\\u2028"'],
  ['😀', '"\\U0001f600"'],
];

for (const [value, expected] of scalars) {
  test(`writes ${JSON.stringify(value)} as ${expected}`, () => assert.equal(toYaml(value), `${expected}\n`));
}

test('nests mappings by two spaces, and lists at the depth of their key', () => {
  const value = { a: { b: [{ c: 1, d: { e: [] } }, 'x', [1, [2]]] }, '@f': 'g' };
  assert.equal(
    toYaml(value),
    ['a:', '  b:', '  - c: 1', '    d:', '      e: []', '  - x', '  - - 1', '    - - 2', '"@f": g', ''].join('\n'),
  );
});

test('refuses numbers that JSON cannot hold', () => {
  assert.throws(() => toYaml({ a: Number.NaN }), TypeError);
});
