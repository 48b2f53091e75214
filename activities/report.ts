/** Writes the run's report page and machine-readable result (records/report.ts). */
import type { ReportInput, ReportResult } from '../workflows/contract.ts';
import { lineageFacts } from '../records/lineage.ts';
import { writeReport } from '../records/report.ts';
import { codeVersion } from './code-version.ts';
import type { RolloutDependencies } from './dependencies.ts';

export async function report({ store, data }: Pick<RolloutDependencies, 'store' | 'data'>, input: ReportInput): Promise<ReportResult> {
  const versions = { node: process.version, code: await codeVersion(), ...(await lineageFacts(data, input.runKey)) };
  return await writeReport({ store, dataDirectory: data, input, versions });
}
