/**
 * One iteration of joint PPO (docs/method.md, RPR): actor and critic are trained together on one batch of rewarded
 * episodes. Values, advantages and reference log-probabilities are computed once, before the first step; the ratio is
 * against the behaviour log-probabilities that were recorded at sampling.
 */
import { UserError } from '../../environment/errors.ts';
import { explainedVariance, whiten } from '../../method/statistics.ts';
import type { LossSums, PpoInput, PpoMetrics, SequenceBatch, TrainingContext } from '../types.ts';
import { atAgentTokens, batchAdvantages } from './advantages.ts';
import { agentMask, agentTokenCount, epochSteps, forwardAll, longestOf, microBatches, pack, padded } from './batching.ts';
import { inputHash } from './checkpointing.ts';
import { runSteps } from './steps.ts';
import type { Handles, LoopOptions } from './steps.ts';
import { emptyEpoch, firedRule, tokensPerTurn } from './stop-rules.ts';
import type { EpochMonitors } from './stop-rules.ts';

/** The micro-batch's rows of per-episode arrays, padded to its length: [B*T]. */
type Rows = (arrays: readonly (readonly number[])[]) => number[];

interface State {
  readonly oldValues: number[][];
  readonly returns: number[][];
  /** Whitened over all agent tokens of the batch. */
  readonly advantages: number[][];
  readonly referenceLogprobs: number[][];
  readonly explainedVariance?: number;
  steps: number;
  policyLossSum: number;
  valueLossSum: number;
  gradientNorm: number;
  criticGradientNorm: number;
  /** Sums of the epoch that runs; `last` is the newest finished one. */
  epoch: EpochMonitors;
  last?: EpochMonitors;
  stop?: NonNullable<PpoMetrics['stop']>;
}

/**
 * @throws UserError for an empty batch, NumericalError for a gradient norm that is not finite. A loss that is not finite ends the loop
 * before the update and is reported in `stop`.
 */
export async function jointPpo(context: TrainingContext, input: PpoInput, options: LoopOptions = {}): Promise<PpoMetrics> {
  const { actorDirectory, criticDirectory, actorOptimizer, criticOptimizer, referenceDirectory, output, ...settings } = input;
  const episodes = input.batch.filter((episode) => agentTokenCount(episode) > 0);
  if (episodes.length === 0) throw new UserError(`jointPpo: ${input.batch.length} episodes, none of which has a token of the agent`);
  const perEpoch = Math.ceil(episodes.length / input.sequencesPerStep);
  const turnLength = tokensPerTurn(episodes);
  const behaviourLogprobs = episodes.map(({ logprobs }) => logprobs);
  // Global over the batch (docs/method.md, RPR), scaled to one step, so that every token weighs the same in every step.
  const denominator = episodes.reduce((sum, episode) => sum + agentTokenCount(episode), 0) / perEpoch;

  const begin = async (handles: Handles): Promise<State> => {
    const forward = { tokenBudget: options.tokenBudget, signal: context.signal };
    const oldValues = await forwardAll(context.trainer, handles.critic!, 'values', episodes, forward);
    const reference = await context.trainer.load({ role: 'actor', directory: referenceDirectory });
    const referenceLogprobs = await forwardAll(context.trainer, reference, 'logprobs', episodes, forward).finally(() =>
      context.trainer.release(reference),
    );
    const { advantages, returns } = batchAdvantages(episodes, oldValues, input.gamma, input.lambda);
    const explained = explainedVariance(atAgentTokens(episodes, returns), atAgentTokens(episodes, oldValues));
    const state: State = {
      oldValues,
      returns,
      advantages: whitened(advantages, episodes.map(agentMask)),
      referenceLogprobs,
      ...(explained !== undefined && { explainedVariance: explained }),
      steps: 0,
      policyLossSum: 0,
      valueLossSum: 0,
      gradientNorm: 0,
      criticGradientNorm: 0,
      epoch: emptyEpoch(),
    };
    // The batch's own turn lengths are known before the first step.
    const stop = firedRule(input.stopRules, {
      turnLength,
      ...(input.initialTokensPerTurn !== undefined && { initialTurnLength: input.initialTokensPerTurn }),
    });
    if (stop !== undefined) state.stop = stop;
    return state;
  };

  const step = async (index: number, state: State, handles: Handles): Promise<{ loss: number; stop?: boolean }> => {
    const epoch = Math.floor(index / perEpoch);
    const members = epochSteps(episodes.length, input.sequencesPerStep, input.seed, epoch)[index % perEpoch]!;
    const monitors = { ...state.epoch };
    let policyLoss = 0;
    let valueLoss = 0;
    for (const indices of microBatches(episodes, members, options.tokenBudget)) {
      const batch = pack(episodes, indices);
      const rows: Rows = (arrays) =>
        padded(
          indices.map((i) => arrays[i]!),
          batch.length,
        );
      const actor = await actorPass(handles.actor!, state, batch, rows);
      const critic = await criticPass(handles.critic!, state, batch, rows);
      policyLoss += actor.loss;
      valueLoss += critic.loss;
      addSums(monitors, actor);
    }
    if (!Number.isFinite(policyLoss) || !Number.isFinite(valueLoss)) return nonFinite(state);
    // A norm that is not finite throws: one of the two models may be updated already, so the iteration before is what counts.
    const actor = await context.trainer.optimStep(handles.actor!, input.actorAdam);
    const critic = await context.trainer.optimStep(handles.critic!, input.criticAdam);
    state.steps += 1;
    state.policyLossSum += policyLoss;
    state.valueLossSum += valueLoss;
    state.gradientNorm = Math.max(state.gradientNorm, actor.gradientNorm);
    state.criticGradientNorm = Math.max(state.criticGradientNorm, critic.gradientNorm);
    state.epoch = monitors;
    if ((index + 1) % perEpoch === 0) {
      state.last = monitors;
      state.epoch = emptyEpoch();
      const stop = firedRule(input.stopRules, { epoch: monitors, gradientNorm: state.gradientNorm });
      if (stop !== undefined) state.stop = stop;
    }
    return { loss: policyLoss, stop: state.stop !== undefined };
  };

  const actorPass = (handle: string, state: State, batch: SequenceBatch, rows: Rows): Promise<LossSums> => {
    return context.trainer.forwardBackward(
      handle,
      {
        kind: 'ppo',
        denominator,
        advantages: rows(state.advantages),
        oldLogprobs: rows(behaviourLogprobs),
        clipLow: input.clipLow,
        clipHigh: input.clipHigh,
        dualClip: input.dualClip,
        klCoefficient: input.klCoefficient,
        referenceLogprobs: rows(state.referenceLogprobs),
        entropyCoefficient: input.entropyCoefficient,
      },
      batch,
    );
  };
  const criticPass = (handle: string, state: State, batch: SequenceBatch, rows: Rows): Promise<LossSums> => {
    return context.trainer.forwardBackward(
      handle,
      { kind: 'value', denominator, returns: rows(state.returns), oldValues: rows(state.oldValues), clip: input.valueClip },
      batch,
    );
  };

  const state = await runSteps<State>(
    context,
    {
      inputHash: await inputHash(settings, [actorDirectory, criticDirectory, actorOptimizer, criticOptimizer, referenceDirectory]),
      models: [
        {
          role: 'actor',
          directory: actorDirectory,
          optimizer: actorOptimizer,
          output: output.actor,
          optimizerOutput: output.actorOptimizer,
        },
        {
          role: 'critic',
          directory: criticDirectory,
          optimizer: criticOptimizer,
          output: output.critic,
          optimizerOutput: output.criticOptimizer,
        },
      ],
      totalSteps: perEpoch * input.epochs,
      longest: longestOf(episodes),
      begin,
      step,
      stopped: (current) => current.stop !== undefined,
    },
    options,
  );
  return metrics(state, input, turnLength);
}

/** Stops before the optimizer step; weights are as they were. NaN does not survive JSON, so the value counts the losses. */
function nonFinite(state: State): { loss: number; stop: boolean } {
  state.stop = { rule: 'nonFinite', value: 1, limit: 0 };
  return { loss: 0, stop: true };
}

function addSums(monitors: EpochMonitors, sums: LossSums): void {
  monitors.tokens += sums.tokens;
  monitors.kl += sums.kl ?? 0;
  monitors.klToStart += sums.klReference ?? 0;
  monitors.entropy += sums.entropy ?? 0;
  monitors.clipped += sums.clipped ?? 0;
}

function whitened(arrays: readonly (readonly number[])[], masks: readonly (readonly number[])[]): number[][] {
  const flat = whiten(arrays.flat(), masks.flat());
  let start = 0;
  return arrays.map((array) => Array.from(flat.subarray(start, (start += array.length))));
}

function metrics(state: State, input: PpoInput, turnLength: number): PpoMetrics {
  const epoch = state.epoch.tokens > 0 || state.last === undefined ? state.epoch : state.last;
  const perToken = (sum: number): number => (epoch.tokens === 0 ? 0 : sum / epoch.tokens);
  const perStep = (sum: number): number => (state.steps === 0 ? 0 : sum / state.steps);
  const { batch } = input;
  return {
    steps: state.steps,
    policyLoss: perStep(state.policyLossSum),
    valueLoss: perStep(state.valueLossSum),
    meanReward: batch.reduce((sum, episode) => sum + episode.reward, 0) / batch.length,
    successRate: batch.filter((episode) => episode.passed).length / batch.length,
    kl: perToken(epoch.kl),
    klToStart: perToken(epoch.klToStart),
    entropy: perToken(epoch.entropy),
    clipFraction: perToken(epoch.clipped),
    gradientNorm: state.gradientNorm,
    criticGradientNorm: state.criticGradientNorm,
    ...(state.explainedVariance !== undefined && { explainedVariance: state.explainedVariance }),
    tokensPerTurn: turnLength,
    ...(state.stop !== undefined && { stop: state.stop }),
  };
}
