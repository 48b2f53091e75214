/** Names and seeds of episodes. They leave out the run's key, so that equal runs give equal artifacts. */
import path from 'node:path';
import { deriveSeed } from '../method/seeds.ts';
import type { BatchKey, EpisodeRequest } from '../workflows/contract.ts';

/** e.g. `RSR-1/rollout/core/sort-lines-3/shell/0`; unique within a run. */
export function episodeId({ stage, purpose }: BatchKey, { task, harness, sample }: EpisodeRequest): string {
  return [stage, purpose, task.suite, task.id, harness, sample].join('/');
}

/** Seed of an episode's turn (unsigned 32 bit); without a turn, the episode's own. */
export function episodeSeed(
  runSeed: number,
  { stage, purpose }: BatchKey,
  { task, harness, sample }: EpisodeRequest,
  turn?: number,
): number {
  const parts = [runSeed, stage, purpose, `${task.suite}/${task.id}`, harness, sample];
  return deriveSeed(...parts, ...(turn === undefined ? [] : [turn]));
}

export function journalFile(data: string, { runKey, stage, purpose }: BatchKey, name: string): string {
  return path.join(data, 'runs', runKey, 'journal', stage, purpose, `${name}.jsonl`);
}
