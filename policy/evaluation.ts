/** Per-token outputs of a model without gradients: as a step for a learner, and as single calls, eagerly, for tests and comparisons. */
import { prepareBatch } from './batch.ts';
import type { PreparedBatch } from './batch.ts';
import { StepFunction, takeToHost } from './engine/step-function.ts';
import type { StepDescription } from './engine/step-function.ts';
import { allLogits, targetLogprobs, targetLogprobsAndEntropy, targetValues } from './model.ts';
import type { Predictions } from './model.ts';
import { configKey } from './model-config.ts';
import type { Model } from './model-parameters.ts';
import { tf } from './tensorflow.ts';
import type { ModelConfig, SequenceBatch } from './types.ts';

export type TokenOutput = 'logprobs' | 'entropy' | 'values';

const OUTPUTS: Readonly<Record<TokenOutput, (...model: Parameters<typeof targetLogprobs>) => tf.Tensor>> = {
  logprobs: targetLogprobs,
  entropy: (...model) => tf.slice(targetLogprobsAndEntropy(...model), [0, 1], [-1, 1]),
  values: targetValues,
};

/** Inputs: `tokens`, `before` and `targets` of a prepared batch; variables: the weights; output: [N]. */
export function evaluationStep(config: ModelConfig, output: TokenOutput): StepDescription {
  return {
    key: `${output} ${configKey(config)}`,
    build: (inputs, weights) => ({ outputs: [OUTPUTS[output](config, weights, inputs as unknown as Predictions)] }),
  };
}

/** Runs an evaluation step, made for the lanes of the batch, on it: [B·T], 0 where no token is predicted. */
export function evaluate(step: (lanes: number) => StepFunction, prepared: PreparedBatch, batch: SequenceBatch): Float32Array {
  const out = new Float32Array(batch.rows * batch.length);
  if (prepared.predicted === 0) return out;
  const { lanes } = prepared;
  const results = step(lanes.length).run(lanes.map(({ inputs: { tokens, before, targets } }) => ({ tokens, before, targets })));
  lanes.forEach(({ predicted }, lane) => {
    const values = takeToHost(results[lane]![0]!);
    predicted.forEach((position, i) => (out[position] = values[i] as number));
  });
  return out;
}

function evaluateOnce(model: Model, output: TokenOutput, batch: SequenceBatch): Float32Array {
  const step = new StepFunction('eager', evaluationStep(model.config, output), [Object.fromEntries(model.params)]);
  return evaluate(() => step, prepareBatch(batch, model.config), batch);
}
/** [B·T] natural log-probability of each masked token given its prefix, 0 elsewhere. */
export function tokenLogprobs(model: Model, batch: SequenceBatch): Float32Array {
  return evaluateOnce(model, 'logprobs', batch);
}
/** [B·T] entropy (nats) of the distribution each masked token is drawn from, 0 elsewhere. */
export function tokenEntropy(model: Model, batch: SequenceBatch): Float32Array {
  return evaluateOnce(model, 'entropy', batch);
}
/** [B·T] value at the position that predicts each masked token, 0 elsewhere. Critic only. */
export function tokenValues(model: Model, batch: SequenceBatch): Float32Array {
  return evaluateOnce(model, 'values', batch);
}

/** [T·V] logits after each token of one sequence, for comparisons with other implementations. */
export function sequenceLogits(model: Model, tokens: readonly number[]): Float32Array {
  const prepared = prepareBatch({ rows: 1, length: tokens.length, tokens, mask: tokens.map(() => 0) }, model.config);
  const description: StepDescription = {
    key: `logits ${configKey(model.config)}`,
    build: ({ tokens: all }, weights) => ({ outputs: [allLogits(model.config, weights, all as tf.Tensor2D)] }),
  };
  const [logits] = new StepFunction('eager', description, [Object.fromEntries(model.params)]).runToHost({
    tokens: prepared.lanes[0]!.inputs.tokens,
  });
  return (logits as Float32Array).subarray(0, tokens.length * model.config.vocab_size);
}
