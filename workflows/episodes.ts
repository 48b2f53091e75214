/**
 * One batch of episodes: rolled out and verified chunk by chunk, a few chunks at a time. The batch is its own workflow so
 * that its history stays small; a very large one continues as new.
 */
import { continueAsNew, workflowInfo } from '@temporalio/workflow';
import { collectChunks, rollout, verify } from './activity-options.ts';
import type {
  ChunkResult,
  EpisodeBatchInput,
  EpisodeBatchResult,
  EpisodeCounts,
  EpisodeGroup,
  EpisodeRequest,
  VerifyInput,
} from './contract.ts';
import { PauseGate, reportProgress } from './control.ts';
import { tasksText } from './details.ts';

/** About 12 events a chunk: a fifth of where the server suggests to continue as new. */
const CHUNKS_PER_EXECUTION = 64;
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
  const before: EpisodeBatchResult = input.resume?.result ?? { chunks: [], counts: noEpisodes };
  const first = input.resume?.nextChunk ?? 0;
  // Holes are chunks in flight.
  const results: ChunkResult[] = [];
  const countsSoFar = (): EpisodeCounts => addCounts(before.counts, ...results.filter(() => true).map(countsOf));
  const total = plan.reduce((sum, chunk) => sum + chunk.length, 0);
  const signalEvery = Math.ceil(plan.length / input.signals);
  let next = first;
  let finished = first;
  const tell = async (): Promise<void> => {
    const { episodes: done, passed } = countsSoFar();
    await reportProgress(root, { stage: key.stage, activity: key.purpose, count: { unit: 'episodes', done, total, passed } });
  };

  const runChunk = async (chunk: number): Promise<void> => {
    const episodes = plan[chunk] ?? [];
    const tasks = tasksText(
      episodes.map(({ task }) => task),
      episodes.length,
    );
    const summary = `${key.stage} · ${key.purpose} · chunk ${chunk + 1} of ${plan.length} · ${tasks}`;
    const { runSeed, policy, sandbox, temperature } = input;
    const rolled = await rollout.executeWithOptions({ summary }, [
      { key, chunk, runSeed, policy, sandbox, temperature, rollout: settings, episodes },
    ]);
    await gate.open();
    const verdicts = await verify.executeWithOptions({ summary }, [
      { key, chunk, sandbox, episodes: rolled.episodes, snapshots: rolled.snapshots, ...directoriesOf(episodes) },
    ]);
    results[chunk - first] = { rollout: rolled, verify: verdicts };
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
  const part = await collectChunks.executeWithOptions({ summary: `${key.stage} · ${key.purpose} · list of ${results.length} chunks` }, [
    { key, chunks: results },
  ]);
  const result = { chunks: [...before.chunks, part], counts: countsSoFar() };
  if (next === plan.length) return result;
  return await continueAsNew<typeof episodeBatch>({ ...input, resume: { nextChunk: next, result, paused: gate.paused } });
}

/** Records name no directories, because equal runs on other machines have equal records. */
function directoriesOf(episodes: readonly EpisodeRequest[]): Pick<VerifyInput, 'directories'> {
  const entries = episodes.flatMap(({ task: { suite, id, dir } }) => (dir === undefined ? [] : [[`${suite}/${id}`, dir] as const]));
  return entries.length === 0 ? {} : { directories: Object.fromEntries(entries) };
}

const noEpisodes: EpisodeCounts = { episodes: 0, passed: 0, failed: 0, noVerdict: 0, agentTokens: 0, totalTokens: 0, timeouts: 0 };

function countsOf({ rollout: rolled, verify: verdicts }: ChunkResult): EpisodeCounts {
  const { episodeCount: episodes, agentTokens, totalTokens, timeouts } = rolled;
  const { passed, failed, noVerdict } = verdicts;
  return { episodes, passed, failed, noVerdict, agentTokens, totalTokens, timeouts };
}

/** Sums field by field; all zero for no argument. */
export function addCounts(...list: readonly EpisodeCounts[]): EpisodeCounts {
  const sum: { -readonly [K in keyof EpisodeCounts]: number } = { ...noEpisodes };
  for (const counts of list) for (const field of Object.keys(sum) as (keyof EpisodeCounts)[]) sum[field] += counts[field];
  return sum;
}
