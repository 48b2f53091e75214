/** Names and seeds of episodes. They leave out the run's key, so that equal runs give equal artifacts. */
import path from 'node:path';
import { deriveSeed } from '../method/seeds.ts';
import { EVALUATION_PURPOSE } from '../workflows/contract.ts';
import type { BatchKey, EpisodeRequest } from '../workflows/contract.ts';

/** e.g. `RSR-1/rollout/core/sort-lines-3/shell/0`; unique within a run. */
export function episodeId({ stage, purpose }: BatchKey, { task, harness, sample }: EpisodeRequest): string {
  return [stage, purpose, task.suite, task.id, harness, sample].join('/');
}

/**
 * Seed of an episode's turn (unsigned 32 bit); without a turn, the episode's own. Evaluations leave out the stage: every stage's n-th
 * evaluation draws the same numbers (common random numbers), so that what differs between stages is the policy, not the luck.
 */
export function episodeSeed(
  runSeed: number,
  { stage, purpose }: BatchKey,
  { task, harness, sample }: EpisodeRequest,
  turn?: number,
): number {
  const scope = purpose.startsWith(EVALUATION_PURPOSE) ? 'every stage' : stage;
  const parts = [runSeed, scope, purpose, `${task.suite}/${task.id}`, harness, sample];
  return deriveSeed(...parts, ...(turn === undefined ? [] : [turn]));
}

export function journalFile(data: string, { runKey, stage, purpose }: BatchKey, name: string): string {
  return path.join(data, 'runs', runKey, 'journal', stage, purpose, `${name}.jsonl`);
}
