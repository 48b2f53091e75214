/**
 * RPR, Recursive Policy-Refine (docs/method.md, RPR): inherit the critic's weights, recalibrate it with four value-only
 * epochs on one batch of the starting policy, then train actor and critic together by PPO, until the iterations are done
 * or a stop rule fires.
 */
import { ActivityFailure, ApplicationFailure, continueAsNew, workflowInfo } from '@temporalio/workflow';
import { jointPpo, reward, warmUpCritic } from './activity-options.ts';
import type { ArtifactRef } from '../records/types.ts';
import type { ProgressCount, RewardResult, RprProgress, RprStageInput, StageBatch, TaskListing, TrainedStage } from './contract.ts';
import { PauseGate, reportProgress } from './control.ts';
import { tasksText } from './details.ts';
import { addCounts, episodeBatch } from './episodes.ts';
import { inRound, signalsPerBatch } from './profiles.ts';

/** About 30 events an iteration: a quarter of the most that a history should hold. */
const ITERATIONS_PER_EXECUTION = 32;

export async function rprStage(input: RprStageInput): Promise<TrainedStage> {
  const { root, runKey, stage, round, config, policy: start, calibration } = input;
  const { rpr, rollout, sandbox, seed } = config;
  const gate = new PauseGate(input.resume?.paused);
  const rewardName = inRound(rpr.reward, round);
  const iterations = inRound(rpr.iterations, round);
  const criticLearningRate = inRound(rpr.criticLearningRate, round);
  const batches: StageBatch[] = [...(input.resume?.batches ?? [])];
  let counts = input.resume?.counts ?? addCounts();

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
    counts = addCounts(counts, batch.counts);
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

  const warmedUp = async (): Promise<Pick<RprProgress, 'next' | 'models' | 'warmUp' | 'ppo'>> => {
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
    const { critic, criticOptimizer, metrics } = warm;
    return { next: 1, models: { actor: start, critic, criticOptimizer }, warmUp: metrics, ppo: [] };
  };

  const before = input.resume ?? (await warmedUp());
  const { next: first, warmUp } = before;
  let { models } = before;
  const ppo = [...before.ppo];
  let stopped: string | undefined;
  for (let iteration = first; iteration <= iterations && stopped === undefined; iteration++) {
    if (iteration - first === ITERATIONS_PER_EXECUTION) {
      const resume = { next: iteration, models, warmUp, ppo, batches, counts, paused: gate.paused };
      return await continueAsNew<typeof rprStage>({ ...input, resume });
    }
    const purpose = `ppo-${iteration}`;
    const batch = await rewardedBatch(purpose, iteration, models.actor);
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
            ...models,
            reference: start,
            batch: batch.batch,
            rpr,
            actorLearningRate: inRound(rpr.actorLearningRate, round),
            criticLearningRate,
            ...(initialTokensPerTurn === undefined ? {} : { initialTokensPerTurn }),
          },
        ],
      );
      const { metrics, ...trained } = result;
      models = trained;
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
    policy: models.actor,
    critic: models.critic,
    ...(stopped === undefined ? {} : { stopped }),
    counts,
    warmUp,
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
