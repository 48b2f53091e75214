/**
 * RPR, Recursive Policy-Refine (docs/method.md, RPR): inherit the critic's weights, recalibrate it with four value-only
 * epochs on one batch of the starting policy, then train actor and critic together by PPO, until the iterations are done
 * or a stop rule fires.
 */
import { ActivityFailure, ApplicationFailure, workflowInfo } from '@temporalio/workflow';
import { jointPpo, reward, warmUpCritic } from './activity-options.ts';
import type { ArtifactRef } from '../records/types.ts';
import type { PpoMetrics } from '../policy/types.ts';
import type {
  EpisodeCounts,
  PpoResult,
  ProgressCount,
  RewardResult,
  RprStageInput,
  StageBatch,
  TaskListing,
  TrainedStage,
} from './contract.ts';
import { PauseGate, reportProgress } from './control.ts';
import { tasksText } from './details.ts';
import { addCounts, episodeBatch } from './episodes.ts';
import { inRound, signalsPerBatch } from './profiles.ts';

export async function rprStage(input: RprStageInput): Promise<TrainedStage> {
  const { root, runKey, stage, round, config, policy: start, calibration } = input;
  const { rpr, rollout, sandbox, seed } = config;
  const gate = new PauseGate();
  const rewardName = inRound(rpr.reward, round);
  const iterations = inRound(rpr.iterations, round);
  const criticLearningRate = inRound(rpr.criticLearningRate, round);
  const batches: StageBatch[] = [];
  const counts: EpisodeCounts[] = [];

  /** Rolls out, verifies and rewards one batch; the first one is the warm-up batch, which also fixes the rewards' family scale. */
  const rewardedBatch = async (purpose: string, index: number, policy: ArtifactRef): Promise<RewardResult & { named: string }> => {
    const tasks = taskWindow(input.training, rpr.tasksPerIteration, (round - 1) * (iterations + 1) + index);
    const named = tasksText(tasks, tasks.length * rpr.samplesPerTask);
    const key = { runKey, stage, purpose };
    const batch = await gate.run(episodeBatch, {
      workflowId: `${workflowInfo().workflowId}/${purpose}`,
      staticSummary: `${stage} · ${purpose} · ${named}`,
      args: [
        {
          key,
          root,
          runSeed: seed,
          policy,
          sandbox,
          // Behaviour log-probabilities must be those of the policy itself: the ratio of PPO is against them.
          temperature: 1,
          rollout,
          groups: [{ tasks, harness: 'shell', samples: rpr.samplesPerTask }],
          signals: signalsPerBatch(config),
        },
      ],
    });
    counts.push(batch.counts);
    await gate.open();
    const familyChunks = batches[0]?.chunks ?? batch.chunks;
    const rewarded = await reward.executeWithOptions({ summary: `${stage} · ${purpose} · reward ${rewardName} · ${named}` }, [
      { key, chunks: batch.chunks, familyChunks, calibration, reward: rewardName, settings: config.reward },
    ]);
    const { meanReward, droppedNoVerdict } = rewarded;
    batches.push({ purpose, chunks: batch.chunks, rewarded: rewarded.batch, meanReward, droppedNoVerdict });
    return { ...rewarded, named };
  };
  const tell = async (activity: string, count?: ProgressCount, loss?: number): Promise<void> => {
    await reportProgress(root, { stage, activity, ...(count ? { count } : {}), ...(loss === undefined ? {} : { loss }) });
  };
  const tellPpo = (done: number, loss?: number): Promise<void> => tell('PPO', { unit: 'iterations', done, total: iterations }, loss);

  const warmUpBatch = await rewardedBatch('warm-up', 0, start);
  await gate.open();
  await tell('critic warm-up');
  const warm = await warmUpCritic.executeWithOptions(
    { summary: `${stage} · critic warm-up, four value-only epochs · ${warmUpBatch.named}` },
    [
      {
        key: { runKey, stage, purpose: 'warm-up' },
        runSeed: seed,
        actor: start,
        ...(input.critic ? { critic: input.critic } : {}),
        batch: warmUpBatch.batch,
        rpr,
        learningRate: criticLearningRate,
      },
    ],
  );
  const warmUpEpochs = warm.metrics.epochs.length;
  const warmUpCount = { unit: 'epochs', done: warmUpEpochs, total: warmUpEpochs } as const;
  await tell('critic warm-up', warmUpCount, warm.metrics.epochs.at(-1)?.valueLoss);

  let now: Pick<PpoResult, 'actor' | 'critic' | 'criticOptimizer'> & { actorOptimizer?: ArtifactRef } = {
    actor: start,
    critic: warm.critic,
    criticOptimizer: warm.criticOptimizer,
  };
  const ppo: PpoMetrics[] = [];
  let stopped: string | undefined;
  for (let iteration = 1; iteration <= iterations && stopped === undefined; iteration++) {
    const purpose = `ppo-${iteration}`;
    const batch = await rewardedBatch(purpose, iteration, now.actor);
    await gate.open();
    await tellPpo(iteration - 1);
    const initialTokensPerTurn = ppo[0]?.tokensPerTurn;
    try {
      const result = await jointPpo.executeWithOptions(
        { summary: `${stage} · PPO iteration ${iteration} of ${iterations} · ${batch.named}` },
        [
          {
            key: { runKey, stage, purpose },
            iteration,
            runSeed: seed,
            ...now,
            reference: start,
            batch: batch.batch,
            rpr,
            actorLearningRate: inRound(rpr.actorLearningRate, round),
            criticLearningRate,
            ...(initialTokensPerTurn === undefined ? {} : { initialTokensPerTurn }),
          },
        ],
      );
      const { metrics, ...models } = result;
      now = models;
      ppo.push(metrics);
      if (metrics.stop)
        stopped = `iteration ${iteration}: ${metrics.stop.rule} = ${String(metrics.stop.value)}, limit ${String(metrics.stop.limit)}`;
      await tellPpo(iteration, metrics.policyLoss);
    } catch (error) {
      const why = numericalError(error);
      if (why === undefined) throw error;
      stopped = `iteration ${iteration}: ${why}`;
    }
  }

  return {
    name: stage,
    kind: 'rpr',
    policy: now.actor,
    critic: now.critic,
    ...(stopped === undefined ? {} : { stopped }),
    counts: addCounts(...counts),
    warmUp: warm.metrics,
    ppo,
    reward: rewardName,
    batches,
    runbooks: [],
    examples: [],
  };
}

/** Numbers that left the finite range stop the stage with the models of the iteration before; the run goes on. */
function numericalError(error: unknown): string | undefined {
  if (!(error instanceof ActivityFailure) || !(error.cause instanceof ApplicationFailure)) return undefined;
  return error.cause.type === 'NumericalError' ? error.cause.message : undefined;
}

/** `size` neighbours of the shuffled training list (0 = all), going round, so that each index takes the next ones. */
export function taskWindow(tasks: readonly TaskListing[], size: number, index: number): TaskListing[] {
  if (size === 0 || size >= tasks.length) return [...tasks];
  const offset = (index * size) % tasks.length;
  return [...tasks.slice(offset), ...tasks].slice(0, size);
}
