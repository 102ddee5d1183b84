import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { loadConfig, parseDuration, settingList } from '../../../src/config/index.js';
import { SdsdError } from '../../../src/errors.js';
import { parseResourceName } from '../../../src/secrets/resource-name.js';
import { temporaryDirectory } from '../../support/temp.js';

const VALID = `socket: /run/sds.sock
secretTtl: 1h30m
gracePeriodRatio: 0.5
identities:
  web: spiffe://example.org/ns/shop/sa/web
trustDomain: example.org
`;

/** The text with some of it deleted, doubled or replaced by what YAML takes seriously. */
const mutated = fc
  .array(
    fc.record({
      at: fc.nat(VALID.length),
      length: fc.nat(12),
      insert: fc.oneof(
        fc.constantFrom('\0', '\t', ': ', '- ', '&a ', '*a', '!!js ', '"', '{', '[', '|\n', '%', '🦊'),
        fc.string({ maxLength: 8 }),
      ),
    }),
    { minLength: 1, maxLength: 4 },
  )
  .map((edits) =>
    edits.reduce((text, { at, length, insert }) => text.slice(0, at) + insert + text.slice(at + length), VALID),
  );

describe('whatever is written in', () => {
  it('the configuration file, the answer is a configuration or an SdsdError', async () => {
    await using directory = await temporaryDirectory();
    const file = join(directory.path, 'sdsd.yaml');
    let accepted = 0;
    await fc.assert(
      fc.asyncProperty(mutated, async (text) => {
        await writeFile(file, text);
        try {
          const config = await loadConfig({ flags: {}, file, env: {}, cwd: directory.path });
          assert.ok(config.certificates.ttl >= 2_000 && config.socket.startsWith('/'));
          accepted += 1;
        } catch (error) {
          assert.ok(error instanceof SdsdError, String(error));
        }
      }),
      { numRuns: 500, seed: 7 },
    );
    assert.ok(accepted > 0, 'some of it is valid');
  });

  it('any variable, the answer is a configuration or an SdsdError', async () => {
    const variables = settingList.map(({ variables: [first] }) => first);
    await fc.assert(
      fc.asyncProperty(fc.constantFrom(...variables), fc.string({ unit: 'binary' }), async (variable, value) => {
        try {
          await loadConfig({ flags: {}, env: { [variable]: value }, cwd: '/base' });
        } catch (error) {
          assert.ok(error instanceof SdsdError, String(error));
        }
      }),
      { numRuns: 2_000, seed: 8 },
    );
  });

  it('a duration, the answer is a number of milliseconds or an error', () => {
    const parts = fc.array(
      fc.tuple(
        fc.oneof(fc.integer(), fc.double(), fc.constant('')),
        fc.constantFrom('h', 'm', 's', 'ms', 'us', 'x', ''),
      ),
    );
    fc.assert(
      fc.property(
        fc.oneof(
          fc.string(),
          parts.map((list) => list.flat().join('')),
        ),
        (text) => {
          try {
            assert.ok(Number.isFinite(parseDuration(text)), text);
          } catch (error) {
            assert.ok(
              error instanceof Error && !(error instanceof TypeError) && !(error instanceof assert.AssertionError),
              String(error),
            );
          }
        },
      ),
      { numRuns: 5_000, seed: 9 },
    );
  });

  it('a resource name, only names that were given are certificates', () => {
    const identities = new Map([['web', 'spiffe://example.org/web']]);
    const near = fc.constantFrom(
      'web',
      'web ',
      'WEB',
      'we',
      'webb',
      'web\0',
      'ROOTCA',
      'rootca',
      'default',
      '__proto__',
      'constructor',
      '',
    );
    fc.assert(
      fc.property(fc.oneof(near, fc.string({ unit: 'binary' })), (name) => {
        const { kind } = parseResourceName(name, identities);
        assert.equal(kind, name === 'web' ? 'workload' : name === 'ROOTCA' ? 'roots' : 'unknown');
      }),
      { numRuns: 2_000, seed: 10 },
    );
  });
});
