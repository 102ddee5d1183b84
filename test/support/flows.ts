/** Flows over several hops, and what is asked of them and of their Envoys. */
import assert from 'node:assert/strict';
import type { Envoy } from './envoy.js';
import { type FlowReport, startFlow } from './handshakes.js';
import type { Hop } from './hop.js';
import { until } from './until.js';

export interface Flows extends AsyncDisposable {
  reports(): readonly FlowReport[];
  /** Resolves when every flow has had this many more good answers. */
  flowOn(requests: number): Promise<void>;
  stop(): Promise<readonly FlowReport[]>;
}

/** `perSecond`: of all hops together. */
export function startFlows(hops: readonly Hop[], perSecond: number): Flows {
  const flows = hops.map(({ attempt }) => startFlow({ attempt, perSecond: perSecond / hops.length }));
  const stop = (): Promise<readonly FlowReport[]> => Promise.all(flows.map((flow) => flow.stop()));
  const reports = (): readonly FlowReport[] => flows.map((flow) => flow.report());
  return {
    reports,
    stop,
    flowOn: async (requests) => {
      const seen = reports().map(({ ok }) => ok);
      await until('requests flow on', () => reports().every(({ ok }, index) => ok >= (seen[index] ?? 0) + requests));
    },
    [Symbol.asyncDispose]: async () => {
      await stop();
    },
  };
}

export function failuresOf(reports: readonly FlowReport[]): number {
  return reports.reduce((sum, { failed }) => sum + failed, 0);
}

/** No request has failed, and there were enough of them on each hop to say so. */
export function assertUnharmed(reports: readonly FlowReport[], least = 10): void {
  for (const { ok, failed, reasons } of reports) {
    assert.equal(failed, 0, `${failed} requests failed: ${JSON.stringify([...reasons])}`);
    assert.ok(ok >= least, `only ${ok} requests in all`);
  }
}

/** The Envoys of the hops, each once. */
export function envoysOf(hops: readonly Hop[]): readonly Envoy[] {
  return [...new Set(hops.flatMap(({ client, server }) => [client, server]))];
}

/** True once this certificate is the only one that each Envoy uses. */
export async function allUse(envoys: readonly Envoy[], serial: string): Promise<boolean> {
  const all = await Promise.all(envoys.map((envoy) => envoy.certs()));
  return all.every(({ leaves }) => leaves.length === 1 && leaves[0]?.serial === serial);
}

export async function assertNothingRejected(envoys: readonly Envoy[]): Promise<void> {
  for (const envoy of envoys) {
    const rejected = await envoy.stats(/^sds\..*\.update_rejected$/);
    assert.deepEqual([...rejected.values()], [0, 0], envoy.log());
  }
}
