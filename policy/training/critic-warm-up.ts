/**
 * RPR's first step (docs/method.md, RPR): exactly four value-only epochs over one fixed batch, before joint training and
 * once per stage. The actor is not even loaded.
 */
import { UserError } from '../../environment/errors.ts';
import { explainedVariance } from '../../method/statistics.ts';
import { NumericalError } from '../errors.ts';
import type { TrainingContext, WarmUpInput, WarmUpMetrics } from '../types.ts';
import { atAgentTokens, batchAdvantages } from './advantages.ts';
import { agentTokenCount, epochSteps, forwardAll, longestOf, microBatches, pack, padded } from './batching.ts';
import { inputHash } from './checkpointing.ts';
import { runSteps } from './steps.ts';
import type { LoopOptions } from './steps.ts';

/** Published; not a setting. */
export const WARM_UP_EPOCHS = 4;

interface State {
  /** From the critic's values before the first step: fixed over the four epochs. */
  returns: number[][];
  steps: number;
  epochs: { valueLoss: number; explainedVariance?: number }[];
  lossSum: number;
}

/** @throws UserError for an empty batch, NumericalError before an update with a loss that is not finite */
export async function warmUpCritic(context: TrainingContext, input: WarmUpInput, options: LoopOptions = {}): Promise<WarmUpMetrics> {
  const { actorDirectory, criticDirectory, outputDirectory, optimizerDirectory, ...settings } = input;
  const start = criticDirectory ?? actorDirectory;
  const episodes = input.batch.filter((episode) => agentTokenCount(episode) > 0);
  if (episodes.length === 0) throw new UserError(`warmUpCritic: ${input.batch.length} episodes, none of which has a token of the agent`);
  const { trainer, signal } = context;
  const perEpoch = Math.ceil(episodes.length / input.sequencesPerStep);
  const batchTokens = episodes.reduce((sum, episode) => sum + agentTokenCount(episode), 0);
  // Global over the batch (docs/method.md, RPR), scaled to one step, so that every token weighs the same in every step.
  const denominator = batchTokens / perEpoch;
  const forward = (critic: string): Promise<number[][]> =>
    forwardAll(trainer, critic, 'values', episodes, { tokenBudget: options.tokenBudget, signal });

  const state = await runSteps<State>(
    context,
    {
      inputHash: await inputHash(settings, [start]),
      // Only weights are inherited: the optimizer is new in each stage.
      models: [{ role: 'critic', directory: start, optimizer: undefined, output: outputDirectory, optimizerOutput: optimizerDirectory }],
      totalSteps: perEpoch * WARM_UP_EPOCHS,
      longest: longestOf(episodes),
      begin: async ({ critic }) => ({
        returns: batchAdvantages(episodes, await forward(critic!), input.gamma, input.lambda).returns,
        steps: 0,
        epochs: [],
        lossSum: 0,
      }),
      step: async (index, sums, { critic }) => {
        const epoch = Math.floor(index / perEpoch);
        const members = epochSteps(episodes.length, input.sequencesPerStep, input.seed, epoch)[index % perEpoch]!;
        let loss = 0;
        for (const indices of microBatches(episodes, members, options.tokenBudget)) {
          const batch = pack(episodes, indices);
          const returns = padded(
            indices.map((i) => sums.returns[i]!),
            batch.length,
          );
          // No value clip: it would freeze every value that has moved `clip` towards its return, and recalibration is about large moves.
          const spec = { kind: 'value', denominator, returns, oldValues: returns, clip: 0 } as const;
          loss += (await trainer.forwardBackward(critic!, spec, batch)).loss;
        }
        if (!Number.isFinite(loss))
          throw new NumericalError(`warmUpCritic: the loss of step ${index} is ${loss}, expected a finite number`);
        await trainer.optimStep(critic!, input.adam);
        sums.steps += 1;
        sums.lossSum += loss * denominator;
        if ((index + 1) % perEpoch === 0) {
          const explained = explainedVariance(atAgentTokens(episodes, sums.returns), atAgentTokens(episodes, await forward(critic!)));
          sums.epochs.push({ valueLoss: sums.lossSum / batchTokens, ...(explained !== undefined && { explainedVariance: explained }) });
          sums.lossSum = 0;
        }
        return { loss };
      },
    },
    options,
  );
  return { epochs: state.epochs, steps: state.steps };
}
