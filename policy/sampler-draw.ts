/**
 * One token from one row of the network's output: temperature, top-k, top-p and inverse-CDF sampling, in float64 TypeScript,
 * so that a draw depends on its row, its rule and its uniform alone. The exponentials are the network's (sampler-network.ts);
 * a draw without cuts is one sum and half a scan, in the order of the token ids.
 */
import { NumericalError } from './errors.ts';
import { cutTokens } from './sampler-cut.ts';

/** One row of a decode step, relative to the greatest logit. */
export interface DecodeOutput {
  /** [V] exp((logit − max) / temperature), at temperature 1 for greedy rows. */
  readonly weights: Float32Array;
  /** ln Σ exp(logit − max), untempered. */
  readonly logSum: number;
}

/** How a token is chosen. The cuts come in this order: temperature, top-k, top-p. */
export interface SamplingRule {
  /** 0: the token with the greatest logit, the smallest id where several have it. */
  readonly temperature: number;
  readonly topK?: number | undefined;
  readonly topP?: number | undefined;
}

export interface Draw {
  readonly token: number;
  /** Natural-log probability under the distribution it was drawn from, after temperature and cuts; 0 for greedy. */
  readonly logprob: number;
  /** Natural-log probability under softmax(logits), the policy itself. */
  readonly policyLogprob: number;
}

/** Summed in blocks, so that a draw from a large vocabulary need not add it up twice. */
const BLOCK = 256;
/** Sums of the blocks; grown to the largest vocabulary seen. */
let blocks = new Float64Array(0);

/**
 * @param uniform in [0, 1): the token is the first whose cumulative probability, by token id, exceeds it. Greedy needs none.
 * @throws NumericalError when the logits are not finite: a broken policy must not look like a bad one
 */
export function drawToken({ weights, logSum }: DecodeOutput, rule: SamplingRule, uniform: number): Draw {
  const total = sumBlocks(weights);
  if (!(Number.isFinite(logSum) && total > 0 && total < Infinity)) {
    throw new NumericalError(
      `sampler: the weights of a row add up to ${total} and ln Σ exp(logit − max) is ${logSum}, expected finite numbers`,
    );
  }
  if (rule.temperature === 0) {
    // Relative to the greatest logit the greatest is 0.
    return { token: greatest(weights), logprob: 0, policyLogprob: -Math.log(total) };
  }
  const { topK = Infinity, topP = 1 } = rule;
  const kept = topK < weights.length || topP < 1 ? cutTokens(weights, total, topK, topP) : undefined;
  const sum = kept === undefined ? total : sumBlocks(kept.weights);
  const place = find(kept?.weights ?? weights, uniform * sum);
  const token = kept?.ids[place] ?? place;
  const logWeight = Math.log(weights[token]!);
  // At temperature 1 the weights are the policy's own, and their float64 sum is better than the network's.
  const policyLogprob = rule.temperature === 1 ? logWeight - Math.log(total) : rule.temperature * logWeight - logSum;
  return { token, logprob: logWeight - Math.log(sum), policyLogprob };
}

/** Fills `blocks`; returns their sum. */
function sumBlocks(weights: Float32Array): number {
  const count = Math.ceil(weights.length / BLOCK);
  if (blocks.length < count) blocks = new Float64Array(count);
  let total = 0;
  for (let block = 0; block < count; block++) {
    const end = Math.min(weights.length, (block + 1) * BLOCK);
    // Four chains: an addition waits for the one before it.
    let a = 0;
    let b = 0;
    let c = 0;
    let d = 0;
    let i = block * BLOCK;
    for (; i + 3 < end; i += 4) {
      a += weights[i]!;
      b += weights[i + 1]!;
      c += weights[i + 2]!;
      d += weights[i + 3]!;
    }
    for (; i < end; i++) a += weights[i]!;
    const sum = a + b + (c + d);
    blocks[block] = sum;
    total += sum;
  }
  return total;
}

/** The first place whose cumulative weight exceeds `target`; `blocks` are those of `weights`. */
function find(weights: Float32Array, target: number): number {
  let cumulative = 0;
  let block = 0;
  const last = Math.ceil(weights.length / BLOCK) - 1;
  while (block < last && cumulative + blocks[block]! <= target) cumulative += blocks[block++]!;
  for (let i = block * BLOCK; i < weights.length; i++) {
    cumulative += weights[i]!;
    if (cumulative > target) return i;
  }
  // Other additions than the sum's may stay a hair below it: then it is the last place that is possible.
  let i = weights.length - 1;
  while (weights[i] === 0) i--;
  return i;
}

function greatest(weights: Float32Array): number {
  let token = 0;
  let max = weights[0]!;
  for (let i = 1; i < weights.length; i++) {
    if (weights[i]! <= max) continue;
    token = i;
    max = weights[i]!;
  }
  return token;
}
