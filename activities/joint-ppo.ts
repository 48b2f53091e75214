/** One PPO iteration over one rewarded batch (policy/training/joint-ppo.ts). */
import { deriveSeed } from '../method/seeds.ts';
import { jointPpo as loop } from '../policy/training/joint-ppo.ts';
import type { RewardedEpisode } from '../policy/types.ts';
import type { PpoActivityInput, PpoResult } from '../workflows/contract.ts';
import type { GpuDependencies } from './dependencies.ts';
import { adam, train } from './training.ts';

export async function jointPpo(deps: GpuDependencies, input: PpoActivityInput): Promise<PpoResult> {
  const { store } = deps;
  const { key, runSeed, rpr } = input;
  const batch = await store.readJsonLines<RewardedEpisode>(input.batch);
  return await train(deps, input, async (context, directory) => {
    const output = {
      actor: directory('actor'),
      critic: directory('critic'),
      actorOptimizer: directory('actor-optimizer'),
      criticOptimizer: directory('critic-optimizer'),
    };
    const metrics = await loop(context, {
      actorDirectory: await store.directory(input.actor),
      criticDirectory: await store.directory(input.critic),
      ...(input.actorOptimizer ? { actorOptimizer: await store.directory(input.actorOptimizer) } : {}),
      ...(input.criticOptimizer ? { criticOptimizer: await store.directory(input.criticOptimizer) } : {}),
      referenceDirectory: await store.directory(input.reference),
      batch,
      gamma: rpr.gamma,
      lambda: rpr.lambda,
      epochs: rpr.epochs,
      sequencesPerStep: rpr.sequencesPerStep,
      clipLow: rpr.clipLow,
      clipHigh: rpr.clipHigh,
      dualClip: rpr.dualClip,
      valueClip: rpr.valueClip,
      klCoefficient: rpr.klCoefficient,
      entropyCoefficient: rpr.entropyCoefficient,
      actorAdam: adam(input.actorLearningRate),
      criticAdam: adam(input.criticLearningRate),
      stopRules: rpr.stopRules,
      ...(input.initialTokensPerTurn === undefined ? {} : { initialTokensPerTurn: input.initialTokensPerTurn }),
      seed: deriveSeed(runSeed, key.stage, key.purpose),
      output,
    });
    return {
      actor: await store.putDirectory('policy', output.actor),
      critic: await store.putDirectory('critic', output.critic),
      actorOptimizer: await store.putDirectory('optimizer', output.actorOptimizer),
      criticOptimizer: await store.putDirectory('optimizer', output.criticOptimizer),
      metrics,
    };
  });
}
