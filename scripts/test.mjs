/**
 * `npm test [FILE …]`: installs and builds what is missing, fetches what the tests need, and runs every test file (or those
 * named) in a process of its own. Prints `N passed, N failed, N skipped` at the end; exits with 1 if anything failed or
 * nothing ran.
 */
import { readdirSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join, relative, resolve } from 'node:path';
import { run as runTests } from 'node:test';
import { spec } from 'node:test/reporters';
import { build, installDependencies, prepare, root, run } from './install.mjs';

prepare(() => {
  installDependencies();
  build();
});
// The loader that reads TypeScript can be registered only once it is installed: so the tests run in a second process.
if (!process.execArgv.includes('--import')) {
  run(process.execPath, ['--import', 'tsx', 'scripts/test.mjs', ...process.argv.slice(2)]);
  process.exit(0);
}

const named = process.argv.slice(2).map((file) => resolve(file));
const files = named.length > 0 ? named : testFiles(join(root, 'test'));
const counts = { passed: 0, failed: 0, skipped: 0 };
const failures = [];

const stream = runTests({ files, concurrency: Math.max(2, availableParallelism()), timeout: 300_000 });
stream.on('test:pass', (event) => count(event, event.skip !== undefined ? 'skipped' : 'passed'));
stream.on('test:fail', (event) => {
  count(event, 'failed');
  failures.push(`${relative(root, event.file ?? '')}: ${event.name}`);
});
stream.compose(spec).pipe(process.stdout);
stream.on('end', () => {
  // After the reporter has had its say.
  setImmediate(() => {
    for (const failure of failures) console.log(`failed: ${failure}`);
    console.log(`${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped`);
    process.exitCode = counts.failed > 0 || counts.passed === 0 ? 1 : 0;
  });
});

/** Suites group tests and are not counted; a file that breaks before its first test is a failure of its own. */
function count(event, outcome) {
  if (event.details?.type !== 'suite' || outcome === 'failed') counts[outcome] += 1;
}

function testFiles(folder) {
  return readdirSync(folder, { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith('.test.ts'))
    .map((entry) => join(entry.parentPath ?? entry.path, entry.name))
    .sort();
}
