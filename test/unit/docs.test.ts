import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, it } from 'node:test';
import { errorsMarkdown, errorsPage } from '../../scripts/docs.js';
import { errorCodes } from '../../src/errors.js';

describe('docs/errors.md', () => {
  it('lists every code with its meaning and cure (npm run docs brings it up to date)', () => {
    const page = readFileSync(errorsPage, 'utf8');
    assert.equal(errorsMarkdown(page), page);
    for (const code of Object.keys(errorCodes)) assert.ok(page.includes(`\`${code}\``), code);
  });
});
