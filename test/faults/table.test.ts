import assert from 'node:assert/strict';
import { test } from 'node:test';
import { faultsMarkdown } from '../../scripts/faults.js';

test('the table of faults takes the place of the one before, and leaves the rest of the page alone', () => {
  const page = '# Faults\n\n| Fault | … |\n|---|---|\n| old | 1 |\n\nThe rest.\n';
  const row = { fault: 'It burns', users: 'nothing', requests: 40, failed: 2, file: 'fire.test.ts' };
  const table = faultsMarkdown(page, [
    { ...row, recoveryMs: 1_234 },
    { ...row, recoveryMs: null },
  ]);
  assert.equal(
    table,
    `# Faults

| Fault | What users see | Failed requests | Time to recovery | Test |
|---|---|---|---|---|
| It burns | nothing | 2 of 40 | 1.23 s | test/faults/fire.test.ts |
| It burns | nothing | 2 of 40 | – | test/faults/fire.test.ts |

The rest.
`,
  );
});
