/**
 * What a job of episodes keeps beside Harbor's documents (harbor-job.ts): each trial's summary in its folder, and in `.terminal-rsi/`
 * the job's settings, the failed attempts of each trial, and trials that were run again.
 */
import { mkdir, readFile, rename } from 'node:fs/promises';
import path from 'node:path';
import { InfrastructureError, onStorage } from '../environment/errors.ts';
import type { Trial } from '../environment/trial/types.ts';
import type { TrialSummary } from '../workflows/job-contract.ts';
import { writeTrial } from './harbor-job.ts';

const OURS = '.terminal-rsi';
const SUMMARY = 'summary.json';

/** Says which job's attempts it is of. */
export interface StoredSummary extends TrialSummary {
  readonly runKey: string;
}

export const settingsFile = (directory: string): string => path.join(directory, OURS, 'settings.json');
/** The whole configuration that the job was last started with, for `npm run episodes -- --resume`. */
export const inputFile = (directory: string): string => path.join(directory, OURS, 'input.json');
export const triesFile = (directory: string, name: string): string => path.join(directory, OURS, 'tries', `${name}.jsonl`);

/** The summary of a trial that is complete, else undefined. */
export async function readSummary(directory: string, name: string): Promise<StoredSummary | undefined> {
  const file = path.join(directory, name, SUMMARY);
  return await onStorage(file, async () => {
    try {
      return JSON.parse(await readFile(file, 'utf8')) as StoredSummary;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
      throw error;
    }
  });
}

/** Writes a trial with its summary. @returns the summary that counts: this one, or that of an attempt which was faster */
export async function keepTrial(directory: string, trial: Trial, summary: StoredSummary): Promise<StoredSummary> {
  const data = Buffer.from(`${JSON.stringify(summary, null, 2)}\n`);
  if (await writeTrial(directory, trial, new Map([[SUMMARY, { data, mode: 0o644 }]]))) return summary;
  const before = await readSummary(directory, trial.name);
  if (!before)
    throw new InfrastructureError(`${path.join(directory, trial.name)}: a trial of another program is in its place; move it away`);
  return before;
}

/** Makes room for another job's try at a trial that failed for its environment; what it left goes to `.terminal-rsi/replaced/`. */
export async function replaceTrial(directory: string, { name, runKey }: StoredSummary): Promise<void> {
  const target = path.join(directory, OURS, 'replaced', `${name}.${runKey}`);
  await onStorage(target, async () => {
    await mkdir(path.dirname(target), { recursive: true });
    try {
      await rename(path.join(directory, name), target);
    } catch (error) {
      // Another attempt of this job has moved it.
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    }
  });
}
