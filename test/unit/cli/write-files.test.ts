import assert from 'node:assert/strict';
import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { writeFiles } from '../../../src/cli/write-files.js';
import { workDirectory } from './fake-io.js';

const file = (path: string, content: string, mode = 0o644) => ({ path, content: Buffer.from(content), mode });

test('writes all files with their modes, whatever the umask, and leaves nothing else', async (t) => {
  const directory = workDirectory(t);
  const previous = process.umask(0o077);
  t.after(() => process.umask(previous));
  await writeFiles([file(join(directory, 'a/key'), 'k', 0o600), file(join(directory, 'a/cert'), 'c', 0o644)], false);
  assert.deepEqual(readdirSync(join(directory, 'a')).sort(), ['cert', 'key']);
  assert.equal(statSync(join(directory, 'a/key')).mode & 0o777, 0o600);
  assert.equal(statSync(join(directory, 'a/cert')).mode & 0o777, 0o644);
});

test('writes none when one exists already', async (t) => {
  const directory = workDirectory(t);
  const [first, second] = [join(directory, 'first'), join(directory, 'second')];
  writeFileSync(second, 'old');
  await assert.rejects(writeFiles([file(first, 'new'), file(second, 'new')], false), {
    code: 'ERR_SDSD_OUTPUT',
    message: /second exists already/,
  });
  assert.deepEqual(readdirSync(directory), ['second']);
  assert.equal(readFileSync(second, 'utf8'), 'old');
});

test('puts back what was there when one cannot be overwritten', async (t) => {
  const directory = workDirectory(t);
  const [first, absent, blocked] = [join(directory, 'first'), join(directory, 'absent'), join(directory, 'blocked')];
  writeFileSync(first, 'old');
  mkdirSync(join(blocked, 'x'), { recursive: true });
  await assert.rejects(writeFiles([file(first, 'new'), file(absent, 'new'), file(blocked, 'new')], true), {
    code: 'ERR_SDSD_OUTPUT',
    message: /cannot write .*blocked/,
  });
  assert.deepEqual(readdirSync(directory).sort(), ['blocked', 'first']);
  assert.equal(readFileSync(first, 'utf8'), 'old');
});

test('overwrites when it may', async (t) => {
  const path = join(workDirectory(t), 'f');
  writeFileSync(path, 'old', { mode: 0o666 });
  await writeFiles([file(path, 'new', 0o600)], true);
  assert.equal(readFileSync(path, 'utf8'), 'new');
  assert.equal(statSync(path).mode & 0o777, 0o600);
});
