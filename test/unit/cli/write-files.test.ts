import assert from 'node:assert/strict';
import { mkdirSync, readdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { writeFiles } from '../../../src/cli/write-files.js';
import { workDirectory } from './fake-io.js';

const file = (path: string, content: string, mode = 0o644) => ({ path, content: Buffer.from(content), mode });

test('writes all files with their modes, whatever the umask, and leaves nothing else', async (t) => {
  const directory = workDirectory(t);
  const previous = process.umask(0o077);
  t.after(() => process.umask(previous));
  await writeFiles([file(join(directory, 'a/key'), 'k', 0o600), file(join(directory, 'a/cert'), 'c', 0o644)], {
    overwrite: false,
    makeDirectory: join(directory, 'a'),
  });
  assert.deepEqual(readdirSync(join(directory, 'a')).sort(), ['cert', 'key']);
  assert.equal(statSync(join(directory, 'a/key')).mode & 0o777, 0o600);
  assert.equal(statSync(join(directory, 'a/cert')).mode & 0o777, 0o644);
});

test('writes none when one exists already', async (t) => {
  const directory = workDirectory(t);
  const [first, second] = [join(directory, 'first'), join(directory, 'second')];
  writeFileSync(second, 'old');
  await assert.rejects(writeFiles([file(first, 'new'), file(second, 'new')], { overwrite: false }), {
    code: 'ERR_SDSD_OUTPUT',
    message: /second exists already/,
  });
  assert.deepEqual(readdirSync(directory), ['second']);
  assert.equal(readFileSync(second, 'utf8'), 'old');
});

test('leaves what was there when one cannot be overwritten', async (t) => {
  const directory = workDirectory(t);
  const [first, absent, blocked] = [join(directory, 'first'), join(directory, 'absent'), join(directory, 'blocked')];
  writeFileSync(first, 'old');
  mkdirSync(join(blocked, 'x'), { recursive: true });
  await assert.rejects(
    writeFiles([file(first, 'new'), file(absent, 'new'), file(blocked, 'new')], { overwrite: true }),
    {
      code: 'ERR_SDSD_OUTPUT',
      message: /blocked exists and is not a file/,
    },
  );
  assert.deepEqual(readdirSync(directory).sort(), ['blocked', 'first']);
  assert.equal(readFileSync(first, 'utf8'), 'old');
});

test('overwrites when it may', async (t) => {
  const path = join(workDirectory(t), 'f');
  writeFileSync(path, 'old', { mode: 0o666 });
  await writeFiles([file(path, 'new', 0o600)], { overwrite: true });
  assert.equal(readFileSync(path, 'utf8'), 'new');
  assert.equal(statSync(path).mode & 0o777, 0o600);
});

test('replaces nothing but files, and makes no directory unasked', async (t) => {
  const directory = workDirectory(t);
  writeFileSync(join(directory, 'file'), 'old');
  symlinkSync(join(directory, 'file'), join(directory, 'link'));
  mkdirSync(join(directory, 'empty'));
  const cases: readonly [path: string, message: RegExp][] = [
    ['/dev/null', /is not a file/],
    [join(directory, 'link'), /is not a file/],
    [join(directory, 'empty'), /is not a file/],
    [join(directory, 'absent/x'), /the directory .*absent does not exist/],
    [join(directory, 'file/x'), /file is not a directory/],
  ];
  for (const [path, message] of cases) {
    await assert.rejects(writeFiles([file(path, 'new')], { overwrite: true }), { code: 'ERR_SDSD_OUTPUT', message });
  }
  assert.deepEqual(readdirSync(directory).sort(), ['empty', 'file', 'link']);
  assert.equal(readFileSync(join(directory, 'file'), 'utf8'), 'old');
});

test('makes the last directory when it may, says so, and takes it back when nothing comes of it', async (t) => {
  const directory = workDirectory(t);
  const makeDirectory = join(directory, 'new');
  const options = { overwrite: false, makeDirectory };
  const twice = [file(join(makeDirectory, 'a'), '1'), file(join(makeDirectory, 'a'), '2')];
  await assert.rejects(writeFiles(twice, options), { code: 'ERR_SDSD_OUTPUT' });
  assert.deepEqual(readdirSync(directory), []);
  assert.deepEqual(await writeFiles([file(join(makeDirectory, 'a'), '1')], options), { made: true });
  assert.deepEqual(await writeFiles([file(join(makeDirectory, 'b'), '1')], options), { made: false });
  const deep = { overwrite: false, makeDirectory: join(directory, 'x/y') };
  await assert.rejects(writeFiles([file(join(directory, 'x/y/a'), '1')], deep), { message: /x does not exist/ });
});
