/** Four value-only epochs before joint training (policy/training/critic-warm-up.ts). */
import { deriveSeed } from '../method/seeds.ts';
import { warmUpCritic as loop } from '../policy/training/critic-warm-up.ts';
import type { RewardedEpisode } from '../policy/types.ts';
import type { WarmUpActivityInput, WarmUpResult } from '../workflows/contract.ts';
import type { GpuDependencies } from './dependencies.ts';
import { adam, train } from './training.ts';

export async function warmUpCritic(deps: GpuDependencies, input: WarmUpActivityInput): Promise<WarmUpResult> {
  const { store } = deps;
  const { key, runSeed, rpr } = input;
  const batch = await store.readJsonLines<RewardedEpisode>(input.batch);
  return await train(deps, input, async (context, output) => {
    const outputDirectory = output('critic');
    const optimizerDirectory = output('critic-optimizer');
    const metrics = await loop(context, {
      actorDirectory: await store.directory(input.actor),
      ...(input.critic ? { criticDirectory: await store.directory(input.critic) } : {}),
      batch,
      gamma: rpr.gamma,
      lambda: rpr.lambda,
      sequencesPerStep: rpr.sequencesPerStep,
      adam: adam(input.learningRate),
      seed: deriveSeed(runSeed, key.stage, key.purpose),
      outputDirectory,
      optimizerDirectory,
    });
    return {
      critic: await store.putDirectory('critic', outputDirectory),
      criticOptimizer: await store.putDirectory('optimizer', optimizerDirectory),
      metrics,
    };
  });
}
