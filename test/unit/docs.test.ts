import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, it } from 'node:test';
import { errorsMarkdown, errorsPage, settingsMarkdown, settingsPage } from '../../scripts/docs.js';
import { settingList } from '../../src/config/index.js';
import { errorCodes } from '../../src/errors.js';

describe('docs/errors.md', () => {
  it('lists every code with its meaning and cure (npm run docs brings it up to date)', () => {
    const page = readFileSync(errorsPage, 'utf8');
    assert.equal(errorsMarkdown(page), page);
    for (const code of Object.keys(errorCodes)) assert.ok(page.includes(`\`${code}\``), code);
  });
});

describe('docs/settings.md', () => {
  it('lists every setting with all that is allowed (npm run docs brings it up to date)', () => {
    const page = readFileSync(settingsPage, 'utf8');
    assert.equal(settingsMarkdown(page), page);
    for (const { key, allowed, variables } of settingList) {
      for (const part of [`\n## \`${key}\`\n`, `- Allowed: ${allowed}\n`, ...variables])
        assert.ok(page.includes(part), part);
    }
  });
});
