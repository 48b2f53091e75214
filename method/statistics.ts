/**
 * The statistics that training and evaluation share: masked moments and whitening over the agent's tokens, explained variance,
 * KL estimators, and means with their uncertainty. Sums run in index order, so results are the same bits on every machine.
 */
import type { Random } from './seeds.ts';

/** Arithmetic mean. @throws RangeError for an empty list, whose mean is not defined. */
export function mean(values: ArrayLike<number>): number {
  if (values.length === 0) throw new RangeError('mean: the list is empty');
  let sum = 0;
  for (let i = 0; i < values.length; i++) sum += values[i] as number;
  return sum / values.length;
}

/** Standard deviation with n − 1 in the denominator; 0 for fewer than two values (their spread cannot be seen). */
export function sampleStandardDeviation(values: ArrayLike<number>): number {
  if (values.length < 2) return 0;
  const center = mean(values);
  let squares = 0;
  for (let i = 0; i < values.length; i++) squares += ((values[i] as number) - center) ** 2;
  return Math.sqrt(squares / (values.length - 1));
}

/** Standard error of the mean of independent values; 0 for fewer than two. */
export function standardError(values: ArrayLike<number>): number {
  return values.length < 2 ? 0 : sampleStandardDeviation(values) / Math.sqrt(values.length);
}

/** Values at mask ≠ 0, in order; what stands elsewhere (NaN included) is never read. */
function kept(values: ArrayLike<number>, mask: ArrayLike<number>): number[] {
  if (values.length !== mask.length) throw new RangeError(`values (${values.length}) and mask (${mask.length}) must have the same length`);
  const list: number[] = [];
  for (let i = 0; i < values.length; i++) if (mask[i] !== 0) list.push(values[i] as number);
  return list;
}

/** Mean over mask ≠ 0. @throws RangeError where the mask keeps nothing. */
export function maskedMean(values: ArrayLike<number>, mask: ArrayLike<number>): number {
  return mean(kept(values, mask));
}

/**
 * (x − μ) / sqrt(σ² + 1e-8) with mean and unbiased variance over mask ≠ 0; exactly 0 elsewhere (verl's masked_whiten, which leaves garbage
 * there). A constant vector gives 0; so does a single kept token, whose variance is not defined.
 */
export function whiten(values: ArrayLike<number>, mask: ArrayLike<number>): Float64Array {
  const list = kept(values, mask);
  const output = new Float64Array(values.length);
  if (list.length === 0) return output;
  const center = mean(list);
  const scale = 1 / Math.sqrt(sampleStandardDeviation(list) ** 2 + 1e-8);
  for (let i = 0; i < values.length; i++) if (mask[i] !== 0) output[i] = ((values[i] as number) - center) * scale;
  return output;
}

/**
 * 1 − Var(returns − values) / Var(returns) over the whole batch at once (cleanrl's formula); undefined where the returns are constant,
 * as with binary rewards they often are, or where there are none.
 */
export function explainedVariance(returns: ArrayLike<number>, values: ArrayLike<number>): number | undefined {
  if (returns.length !== values.length) {
    throw new RangeError(`explainedVariance: returns (${returns.length}) and values (${values.length}) must have the same length`);
  }
  const total = sampleStandardDeviation(returns) ** 2;
  if (!(total > 1e-12)) return undefined;
  const residuals = Array.from(returns, (value, i) => value - (values[i] as number));
  return 1 - sampleStandardDeviation(residuals) ** 2 / total;
}

/**
 * Schulman's estimators of KL(policy ‖ reference) from the log-probabilities of one token sampled from the policy. k1 is unbiased and may be negative;
 * k2 and k3 are not. k3 is clamped as in verl (log-ratio to ±20, result to ±10), so that one impossible token cannot overflow a batch.
 */
export function klEstimators(logprob: number, reference: number): { k1: number; k2: number; k3: number } {
  const k1 = logprob - reference;
  const ratio = Math.min(20, Math.max(-20, -k1));
  return { k1, k2: 0.5 * k1 * k1, k3: Math.min(10, Math.exp(ratio) - ratio - 1) };
}

export interface PairedDifference {
  /** Mean of after − before. */
  readonly mean: number;
  /** Percentile bootstrap interval at `level`. */
  readonly low: number;
  readonly high: number;
  readonly pairs: number;
}

/**
 * Difference between two measurements of the same items (tasks of a suite before and after a stage), with a percentile bootstrap
 * over the items: pairing takes out how hard each task is. Deterministic for a given generator.
 * @throws RangeError for lists of different length or empty ones.
 */
export function pairedDifference(
  before: ArrayLike<number>,
  after: ArrayLike<number>,
  options: { readonly random: Random; readonly resamples?: number; readonly level?: number },
): PairedDifference {
  if (before.length !== after.length) {
    throw new RangeError(`pairedDifference: before (${before.length}) and after (${after.length}) must have the same length`);
  }
  const { random, resamples = 2000, level = 0.95 } = options;
  const differences = Array.from(after, (value, i) => value - (before[i] as number));
  const center = mean(differences);
  const means: number[] = [];
  for (let k = 0; k < resamples; k++) means.push(mean(differences.map(() => random.pick(differences))));
  means.sort((a, b) => a - b);
  const quantile = (q: number): number => means[Math.min(means.length - 1, Math.max(0, Math.round(q * (means.length - 1))))] as number;
  return { mean: center, low: quantile((1 - level) / 2), high: quantile((1 + level) / 2), pairs: differences.length };
}
