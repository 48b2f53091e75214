/** Whether every planned trial of a job has one verdict, and no other trial is there. */
import { readdir } from 'node:fs/promises';
import path from 'node:path';
import { trialName } from '../../environment/trial/outcome.ts';
import { readSummary } from '../../records/job-folder.ts';
import type { TrialSummary } from '../../workflows/job-contract.ts';

export interface JobVerdicts {
  readonly agent: string;
  readonly trials: number;
  readonly passed: number;
  readonly failed: number;
  readonly noVerdict: number;
  readonly infraFailed: number;
  readonly attempts: number;
  readonly errors: Readonly<Record<string, number>>;
  /** Names of trials without a verdict, and of such that nobody asked for. */
  readonly lost: readonly string[];
  readonly doubled: readonly string[];
}

export async function verdictsOf(directory: string, agent: string, tasks: readonly string[], samples: number): Promise<JobVerdicts> {
  const expected = new Set(
    tasks.flatMap((task) => Array.from({ length: samples }, (_, sample) => trialName(path.basename(directory), task, sample))),
  );
  const entries = await readdir(directory, { withFileTypes: true });
  const found = entries.filter((entry) => entry.isDirectory() && !entry.name.startsWith('.')).map(({ name }) => name);
  const summaries = (await Promise.all([...expected].map((name) => readSummary(directory, name)))).filter(
    (summary) => summary !== undefined,
  );
  const there = new Set(summaries.map(({ name }) => name));
  const replaced = await readdir(path.join(directory, '.terminal-rsi', 'replaced')).catch(() => []);
  const count = (which: (summary: TrialSummary) => boolean): number => summaries.filter(which).length;
  const errors: Record<string, number> = {};
  for (const { error } of summaries) if (error !== undefined) errors[error] = (errors[error] ?? 0) + 1;
  return {
    agent,
    trials: summaries.length,
    passed: count(({ outcome }) => outcome === 'passed'),
    failed: count(({ outcome }) => outcome === 'failed'),
    noVerdict: count(({ outcome }) => outcome === 'no-verdict'),
    infraFailed: count(({ infraFailed }) => infraFailed),
    attempts: summaries.reduce((sum, { attempts }) => sum + attempts, 0),
    errors,
    lost: [...expected].filter((name) => !there.has(name)),
    doubled: [...found.filter((name) => !expected.has(name)), ...replaced],
  };
}
