/**
 * RSR, Recursive Self-Rewrite (docs/method.md): roll out in the target and complementary harnesses, verify, rewrite
 * the successes into screened and re-executed procedures, and fine-tune the actor on them. The critic is not touched.
 */
import { workflowInfo } from '@temporalio/workflow';
import { fineTuneActor, rewrite } from './activity-options.ts';
import type { ArtifactRef } from '../records/types.ts';
import type { EpisodeGroup, RewriteCounts, RewriteResult, StageInput, TaskListing, TrainedStage } from './contract.ts';
import { PauseGate, reportProgress } from './control.ts';
import { episodeBatch, planChunks } from './episodes.ts';
import { inRound } from './profiles.ts';

/** Small enough that a lost attempt costs little, large enough that the activity is worth its scheduling. */
const TASKS_PER_REWRITE = 16;
/** Rewriting is bound by sandboxes and CPU, not by the sampler. */
const REWRITES_IN_FLIGHT = 2;

export async function rsrStage(input: StageInput): Promise<TrainedStage> {
  const { root, runKey, stage, round, config, policy } = input;
  const { rsr, rollout, sandbox, seed } = config;
  const gate = new PauseGate();
  const tasks = input.training;
  const groups: EpisodeGroup[] = [{ tasks, harness: 'shell', samples: rsr.samplesPerTask }];
  for (const harness of rsr.complementaryHarnesses) groups.push({ tasks, harness, samples: rsr.complementarySamplesPerTask });

  const batch = await gate.run(episodeBatch, {
    workflowId: `${workflowInfo().workflowId}/rollout`,
    staticSummary: `${stage} · rollout of ${tasks.length} training tasks`,
    args: [
      {
        key: { runKey, stage, purpose: 'rollout' },
        root,
        runSeed: seed,
        policy,
        sandbox,
        temperature: rollout.temperature,
        rollout,
        groups,
      },
    ],
  });

  const plan = planChunks(groups, rollout.chunkSize);
  const parts: TaskListing[][] = [];
  for (let start = 0; start < tasks.length; start += TASKS_PER_REWRITE) parts.push(tasks.slice(start, start + TASKS_PER_REWRITE));
  const rewritten: RewriteResult[] = [];
  let next = 0;
  const tellRewritten = async (): Promise<void> => {
    // Without the holes of groups in flight.
    const ended = rewritten.filter(() => true);
    const kept = ended.reduce((sum, { counts }) => sum + counts.kept, 0);
    await reportProgress(root, {
      stage,
      activity: 'rewrite',
      count: { unit: 'task groups', done: ended.length, total: parts.length, kept },
    });
  };
  const lane = async (): Promise<void> => {
    while (next < parts.length) {
      await gate.open();
      const chunk = next++;
      const part = parts[chunk];
      if (part === undefined) return;
      const names = new Set(part.map(nameOf));
      const chunks = batch.chunks.filter((_, index) => plan[index]?.some(({ task }) => names.has(nameOf(task))));
      rewritten[chunk] = await rewrite.executeWithOptions({ summary: `${stage} · rewrite · tasks ${chunk + 1} of ${parts.length}` }, [
        { key: { runKey, stage, purpose: 'rewrite' }, chunk, sandbox, chunks, tasks: part, policy, keptPerTask: rsr.keptPerTask, rollout },
      ]);
      await tellRewritten();
    }
  };
  await tellRewritten();
  await Promise.all(Array.from({ length: REWRITES_IN_FLIGHT }, lane));
  const counts = sumCounts(rewritten.map((result) => result.counts));
  const common = {
    name: stage,
    kind: 'rsr',
    episodes: batch.episodes,
    tokens: batch.tokens,
    rewrite: counts,
    chunks: batch.chunks,
  } as const;
  const examples: ArtifactRef[] = rewritten.filter((result) => result.counts.kept > 0).map((result) => result.examples);
  if (examples.length === 0)
    return { ...common, policy, stopped: 'no rewritten procedure passed the screens and its re-run: nothing to train on' };

  const tellFineTune = async (done: number, loss?: number): Promise<void> => {
    const count = { unit: 'epochs', done, total: rsr.epochs } as const;
    await reportProgress(root, { stage, activity: 'fine-tune', count, ...(loss === undefined ? {} : { loss }) });
  };
  await gate.open();
  await tellFineTune(0);
  const tuned = await fineTuneActor.executeWithOptions({ summary: `${stage} · fine-tune the actor on ${counts.kept} episodes` }, [
    {
      key: { runKey, stage, purpose: 'fine-tune' },
      runSeed: seed,
      actor: policy,
      examples,
      epochs: rsr.epochs,
      sequencesPerStep: rsr.sequencesPerStep,
      learningRate: inRound(rsr.learningRate, round),
    },
  ]);
  await tellFineTune(tuned.metrics.epochLosses.length, tuned.metrics.epochLosses.at(-1));
  return { ...common, policy: tuned.actor, fineTune: tuned.metrics };
}

function nameOf(task: TaskListing): string {
  return `${task.suite}/${task.id}`;
}

function sumCounts(list: readonly RewriteCounts[]): RewriteCounts {
  const dropped: Record<string, number> = {};
  const sum = { successes: 0, kept: 0, executions: 0 };
  for (const counts of list) {
    sum.successes += counts.successes;
    sum.kept += counts.kept;
    sum.executions += counts.executions;
    for (const [rule, count] of Object.entries(counts.dropped)) dropped[rule] = (dropped[rule] ?? 0) + count;
  }
  return { ...sum, dropped };
}
