/**
 * RSR, Recursive Self-Rewrite (docs/method.md): roll out in the target and complementary harnesses, verify, rewrite
 * the successes into screened and re-executed procedures, and fine-tune the actor on them. The critic is not touched.
 */
import { workflowInfo } from '@temporalio/workflow';
import { fineTuneActor, rewrite } from './activity-options.ts';
import type { ArtifactRef } from '../records/types.ts';
import type { EpisodeGroup, RewriteResult, StageInput, TaskListing, TrainedStage } from './contract.ts';
import { addRewriteCounts } from '../method/rewrite-counts.ts';
import { PauseGate, reportProgress } from './control.ts';
import { counted, tasksText } from './details.ts';
import { episodeBatch, planChunks } from './episodes.ts';
import { inRound, signalsPerBatch } from './profiles.ts';

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
        signals: signalsPerBatch(config),
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
      const places = plan.flatMap((requests, index) => (requests.some(({ task }) => names.has(nameOf(task))) ? [index] : []));
      rewritten[chunk] = await rewrite.executeWithOptions(
        { summary: `${stage} · rewrite · part ${chunk + 1} of ${parts.length} · ${tasksText(part)}` },
        [
          {
            ...{ key: { runKey, stage, purpose: 'rewrite' }, chunk, sandbox, chunks: batch.chunks, places, tasks: part },
            ...{ policy, keptPerTask: rsr.keptPerTask, rollout },
          },
        ],
      );
      await tellRewritten();
    }
  };
  await tellRewritten();
  await Promise.all(Array.from({ length: REWRITES_IN_FLIGHT }, lane));
  const counts = addRewriteCounts(rewritten.map((result) => result.counts));
  const examples: ArtifactRef[] = rewritten.filter((result) => result.counts.kept > 0).map((result) => result.examples);
  const common = {
    ...{ name: stage, kind: 'rsr' as const, counts: batch.counts, rewrite: counts, examples },
    batches: [{ purpose: 'rollout', chunks: batch.chunks }],
    runbooks: rewritten.map((result) => result.runbooks),
  };
  if (examples.length === 0)
    return { ...common, policy, stopped: 'no rewritten procedure passed the screens and its re-run: nothing to train on' };

  const tellFineTune = async (done: number, loss?: number): Promise<void> => {
    const count = { unit: 'epochs', done, total: rsr.epochs } as const;
    await reportProgress(root, { stage, activity: 'fine-tune', count, ...(loss === undefined ? {} : { loss }) });
  };
  await gate.open();
  await tellFineTune(0);
  const tuned = await fineTuneActor.executeWithOptions(
    { summary: `${stage} · fine-tune · ${counted(rsr.epochs, 'epoch')} · ${counted(counts.kept, 'runbook')} of ${tasksText(tasks)}` },
    [
      {
        key: { runKey, stage, purpose: 'fine-tune' },
        runSeed: seed,
        actor: policy,
        examples,
        epochs: rsr.epochs,
        sequencesPerStep: rsr.sequencesPerStep,
        learningRate: inRound(rsr.learningRate, round),
      },
    ],
  );
  await tellFineTune(tuned.metrics.epochLosses.length, tuned.metrics.epochLosses.at(-1));
  return { ...common, policy: tuned.actor, fineTune: tuned.metrics };
}

function nameOf(task: TaskListing): string {
  return `${task.suite}/${task.id}`;
}
