/** What a fault came to, for the table in docs/faults.md, which `npm run faults` makes of these. */
import { appendFileSync } from 'node:fs';
import { basename } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { FlowReport } from './handshakes.js';

/** One row of the table, as a line of JSON in the file that SDSD_FAULTS_REPORT names. */
export interface FaultRow {
  readonly fault: string;
  /** What users see, in words that the test has checked. */
  readonly users: string;
  readonly requests: number;
  readonly failed: number;
  /** From the end of the fault until every Envoy is well again, in ms; null where there is nothing to recover from. */
  readonly recoveryMs: number | null;
  /** The file of the test, without its folder. */
  readonly file: string;
}

export interface Fault {
  readonly fault: string;
  readonly users: string;
  readonly reports: readonly FlowReport[];
  readonly recoveryMs?: number;
}

/** Call it last, when all has been asserted, with the `import.meta.url` of the test. Does nothing unless a report is wanted. */
export function recordFault(test: string, { fault, users, reports, recoveryMs }: Fault): void {
  const path = process.env['SDSD_FAULTS_REPORT'];
  if (!path) return;
  const failed = reports.reduce((sum, report) => sum + report.failed, 0);
  const ok = reports.reduce((sum, report) => sum + report.ok, 0);
  const row: FaultRow = {
    ...{ fault, users, requests: ok + failed, failed, file: basename(fileURLToPath(test)) },
    recoveryMs: recoveryMs === undefined ? null : Math.round(recoveryMs),
  };
  appendFileSync(path, `${JSON.stringify(row)}\n`);
}
