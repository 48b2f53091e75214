/**
 * RSR's last step: supervised fine-tuning of the actor on the agent's own tokens (docs/method.md, RSR 6). Instruction and
 * observation tokens are context only.
 */
import { UserError } from '../../environment/errors.ts';
import { NumericalError } from '../errors.ts';
import type { FineTuneInput, FineTuneMetrics, TrainingContext } from '../types.ts';
import { agentTokenCount, epochSteps, longestOf, microBatches, pack } from './batching.ts';
import { inputHash } from './checkpointing.ts';
import { runSteps } from './steps.ts';
import type { LoopOptions } from './steps.ts';

interface State {
  steps: number;
  tokens: number;
  /** Per epoch, summed over tokens. */
  lossSums: number[];
  lossTokens: number[];
}

/** @throws UserError without examples, NumericalError before an update with a loss that is not finite */
export async function fineTuneActor(context: TrainingContext, input: FineTuneInput, options: LoopOptions = {}): Promise<FineTuneMetrics> {
  const { actorDirectory, outputDirectory, ...settings } = input;
  const examples = input.examples.filter((example) => agentTokenCount(example) > 0);
  if (examples.length === 0)
    throw new UserError(`fineTuneActor: ${input.examples.length} examples, none of which has a token of the agent`);
  const perEpoch = Math.ceil(examples.length / input.sequencesPerStep);
  const state = await runSteps<State>(
    context,
    {
      inputHash: await inputHash(settings, [actorDirectory]),
      models: [{ role: 'actor', directory: actorDirectory, optimizer: undefined, output: outputDirectory, optimizerOutput: undefined }],
      totalSteps: perEpoch * input.epochs,
      longest: longestOf(examples),
      begin: async () => ({ steps: 0, tokens: 0, lossSums: [], lossTokens: [] }),
      step: async (index, sums, { actor }) => {
        const epoch = Math.floor(index / perEpoch);
        const members = epochSteps(examples.length, input.sequencesPerStep, input.seed, epoch)[index % perEpoch]!;
        const denominator = members.reduce((sum, i) => sum + agentTokenCount(examples[i]!), 0);
        let loss = 0;
        for (const indices of microBatches(examples, members, options.tokenBudget)) {
          loss += (await context.trainer.forwardBackward(actor!, { kind: 'sft', denominator }, pack(examples, indices))).loss;
        }
        if (!Number.isFinite(loss))
          throw new NumericalError(`fineTuneActor: the loss of step ${index} is ${loss}, expected a finite number`);
        await context.trainer.optimStep(actor!, input.adam);
        sums.steps += 1;
        sums.tokens += denominator;
        sums.lossSums[epoch] = (sums.lossSums[epoch] ?? 0) + loss * denominator;
        sums.lossTokens[epoch] = (sums.lossTokens[epoch] ?? 0) + denominator;
        return { loss };
      },
    },
    options,
  );
  return { steps: state.steps, tokens: state.tokens, epochLosses: state.lossSums.map((sum, epoch) => sum / state.lossTokens[epoch]!) };
}
