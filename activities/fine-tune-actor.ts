/** Fine-tunes the actor on the kept examples of an RSR stage (policy/training/fine-tune.ts). */
import type { EpisodeTokens } from '../environment/types.ts';
import { deriveSeed } from '../method/seeds.ts';
import { fineTuneActor as loop } from '../policy/training/fine-tune.ts';
import type { FineTuneActivityInput, FineTuneResult } from '../workflows/contract.ts';
import type { GpuDependencies } from './dependencies.ts';
import { adam, train } from './training.ts';

export async function fineTuneActor(deps: GpuDependencies, input: FineTuneActivityInput): Promise<FineTuneResult> {
  const { store } = deps;
  const { key, runSeed, epochs, sequencesPerStep } = input;
  const examples: EpisodeTokens[] = [];
  for (const ref of input.examples) examples.push(...(await store.readJsonLines<EpisodeTokens>(ref)));
  return await train(deps, input, async (context, output) => {
    const outputDirectory = output('actor');
    const metrics = await loop(context, {
      actorDirectory: await store.directory(input.actor),
      examples,
      epochs,
      sequencesPerStep,
      adam: adam(input.learningRate),
      seed: deriveSeed(runSeed, key.stage, key.purpose),
      outputDirectory,
    });
    return { actor: await store.putDirectory('policy', outputDirectory), metrics };
  });
}
