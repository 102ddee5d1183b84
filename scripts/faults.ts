/**
 * `npm run faults`: runs the fault tests, one after the other, and writes the table in `docs/faults.md` from what they
 * measured. Leaves the page as it is, and exits with 1, if a test fails.
 */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { FaultRow } from '../test/support/fault-report.js';

export const faultsPage = fileURLToPath(new URL('../docs/faults.md', import.meta.url));
const folder = fileURLToPath(new URL('../test/faults/', import.meta.url));

/** The page with its table made anew; everything else in it is written by hand. */
export function faultsMarkdown(page: string, rows: readonly FaultRow[]): string {
  const table = [
    '| Fault | What users see | Failed requests | Time to recovery | Test |',
    '|---|---|---|---|---|',
    ...rows.map(({ fault, users, requests, failed, recoveryMs, file }) => {
      const recovery = recoveryMs === null ? '–' : `${(recoveryMs / 1000).toFixed(2)} s`;
      return `| ${fault} | ${users} | ${failed} of ${requests} | ${recovery} | test/faults/${file} |`;
    }),
  ].join('\n');
  return page.replace(/\| Fault [\s\S]*?\n\n/, () => `${table}\n\n`);
}

/** Runs every fault test; what they recorded, or undefined if one failed or none recorded anything. */
function runFaults(): readonly FaultRow[] | undefined {
  const directory = mkdtempSync(join(tmpdir(), 'sdsd-faults-'));
  try {
    const report = join(directory, 'report');
    writeFileSync(report, '');
    const files = readdirSync(folder).filter((file) => file.endsWith('.test.ts'));
    const { status } = spawnSync(
      process.execPath,
      [
        ...['--import', 'tsx', '--test', '--test-concurrency=1', '--test-reporter=spec'],
        ...files.sort().map((file) => join(folder, file)),
      ],
      { stdio: 'inherit', env: { ...process.env, SDSD_FAULTS_REPORT: report } },
    );
    const lines = readFileSync(report, 'utf8').split('\n');
    const rows = lines.filter((line) => line !== '').map((line): FaultRow => JSON.parse(line));
    return status === 0 && rows.length > 0 ? rows : undefined;
  } finally {
    rmSync(directory, { recursive: true });
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const rows = runFaults();
  if (rows) writeFileSync(faultsPage, faultsMarkdown(readFileSync(faultsPage, 'utf8'), rows));
  else console.error('docs/faults.md is left as it is: a test failed, or there is no Envoy to test with');
  process.exitCode = rows ? 0 : 1;
}
