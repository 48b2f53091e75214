/**
 * One token from one row of logits: softmax at a temperature and inverse-CDF sampling, in float64 TypeScript, so that a
 * draw depends on its logits and its uniform alone.
 */
export interface Draw {
  readonly token: number;
  /** Natural-log probability of the token under softmax(logits / temperature). */
  readonly logprob: number;
}

/** Scratch, grown to the largest vocabulary seen. */
let weights = new Float64Array(0);

/**
 * @param logits [V]
 * @param temperature > 0
 * @param uniform in [0, 1): the token is the first whose cumulative probability exceeds it
 * @throws Error when the logits are not finite: a broken policy must not look like a bad one
 */
export function drawToken(logits: Float32Array, temperature: number, uniform: number): Draw {
  if (weights.length < logits.length) weights = new Float64Array(logits.length);
  let max = -Infinity;
  for (let i = 0; i < logits.length; i++) if (logits[i]! > max) max = logits[i]!;
  let total = 0;
  for (let i = 0; i < logits.length; i++) {
    const weight = Math.exp((logits[i]! - max) / temperature);
    weights[i] = weight;
    total += weight;
  }
  if (!Number.isFinite(total)) throw new Error(`sampler: the sum of exp(logits) is ${total}, expected a finite number`);
  const target = uniform * total;
  let cumulative = 0;
  let token = 0;
  for (let i = 0; i < logits.length; i++) {
    if (weights[i] === 0) continue;
    token = i;
    cumulative += weights[i]!;
    if (cumulative > target) break;
  }
  return { token, logprob: (logits[token]! - max) / temperature - Math.log(total) };
}
