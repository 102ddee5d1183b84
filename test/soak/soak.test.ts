import assert from 'node:assert/strict';
import { test } from 'node:test';
import { growth, soak } from '../support/soak.js';

const skip = process.platform !== 'linux' && 'descriptors are counted in /proc, which only Linux has';

test('thousands of clients that come and go, and hundreds of rotations, leave nothing behind', { skip }, async () => {
  const result = await soak({ cycles: 5_000, rotations: 500 });
  assert.deepEqual(growth(result), [], JSON.stringify(result));
});
