/**
 * One batch of episodes: rolled out and verified chunk by chunk, a few chunks at a time. The batch is its own workflow so
 * that its history stays small; a very large one continues as new.
 */
import { continueAsNew, workflowInfo } from '@temporalio/workflow';
import { rollout, verify } from './activity-options.ts';
import type { ChunkResult, EpisodeBatchInput, EpisodeBatchResult, EpisodeGroup, EpisodeRequest } from './contract.ts';
import { PauseGate, reportProgress } from './control.ts';

/** About 12 events a chunk: a fifth of where the server suggests to continue as new. */
const CHUNKS_PER_EXECUTION = 64;
/** Bounds what the training run's history takes from one batch. */
const SIGNALS_PER_BATCH = 16;

/** The batch's episodes in order, in chunks. All samples of a task are neighbours, so that few chunks hold any one task. */
export function planChunks(groups: readonly EpisodeGroup[], chunkSize: number): EpisodeRequest[][] {
  const chunks: EpisodeRequest[][] = [];
  for (const { tasks, harness, samples } of groups) {
    for (const task of tasks) {
      for (let sample = 0; sample < samples; sample++) {
        let last = chunks.at(-1);
        if (last === undefined || last.length === chunkSize) chunks.push((last = []));
        last.push({ task, harness, sample });
      }
    }
  }
  return chunks;
}

export async function episodeBatch(input: EpisodeBatchInput): Promise<EpisodeBatchResult> {
  const { key, root, rollout: settings } = input;
  const gate = new PauseGate(input.resume?.paused);
  const plan = planChunks(input.groups, settings.chunkSize);
  const results: ChunkResult[] = [...(input.resume?.chunks ?? [])];
  const first = results.length;
  const total = plan.reduce((sum, chunk) => sum + chunk.length, 0);
  const signalEvery = Math.ceil(plan.length / SIGNALS_PER_BATCH);
  let next = first;
  let finished = first;
  const tell = async (): Promise<void> => {
    const { episodes: done, passed } = totals(results);
    await reportProgress(root, { stage: key.stage, activity: key.purpose, count: { unit: 'episodes', done, total, passed } });
  };

  const runChunk = async (chunk: number): Promise<void> => {
    const episodes = plan[chunk] ?? [];
    const summary = `${key.stage} · ${key.purpose} · chunk ${chunk + 1} of ${plan.length} (${episodes.length} episodes)`;
    const { runSeed, policy, sandbox, temperature } = input;
    const rolled = await rollout.executeWithOptions({ summary }, [
      { key, chunk, runSeed, policy, sandbox, temperature, rollout: settings, episodes },
    ]);
    await gate.open();
    const verdicts = await verify.executeWithOptions({ summary }, [
      { key, chunk, sandbox, episodes: rolled.episodes, snapshots: rolled.snapshots },
    ]);
    results[chunk] = { rollout: rolled, verify: verdicts };
    finished++;
    if (finished % signalEvery === 0 || finished === plan.length) await tell();
  };
  const lane = async (): Promise<void> => {
    while (next < plan.length && next - first < CHUNKS_PER_EXECUTION && !workflowInfo().continueAsNewSuggested) {
      await gate.open();
      // Another lane may have taken the last one while this one was held.
      if (next >= plan.length) return;
      await runChunk(next++);
    }
  };

  if (first === 0) await tell();
  await Promise.all(Array.from({ length: settings.chunksInFlight }, lane));
  if (next < plan.length) {
    return await continueAsNew<typeof episodeBatch>({ ...input, resume: { chunks: results, paused: gate.paused } });
  }
  const { episodes, tokens, passed, noVerdict } = totals(results);
  return { chunks: results, episodes, tokens, passed, noVerdict };
}

/** Sums over the chunks that are there; holes are chunks still in flight. */
function totals(chunks: readonly ChunkResult[]): { episodes: number; tokens: number; passed: number; noVerdict: number } {
  const sum = { episodes: 0, tokens: 0, passed: 0, noVerdict: 0 };
  chunks.forEach(({ rollout: rolled, verify: verdicts }) => {
    sum.episodes += rolled.episodeCount;
    sum.tokens += rolled.totalTokens;
    sum.passed += verdicts.passed;
    sum.noVerdict += verdicts.noVerdict;
  });
  return sum;
}
