/**
 * Top-k and top-p: which tokens of a row may be drawn. Tokens stand in one order, by weight from high to low and by id from
 * low to high where weights are equal; both cuts keep a beginning of it, so ties are decided by the smaller id and the set is
 * exact: top-k its first k, top-p (Holtzman et al. 2020) its shortest beginning that holds at least p of what top-k left.
 *
 * A sort of the vocabulary would cost far more than the draw. The weights are counted into buckets by the high bits of their
 * float32 pattern, which orders non-negative numbers as their values do, and only the bucket in which the cut lies is sorted.
 */

/** Leaves the exponent and 5 bits of mantissa of a weight in [0, 1]. */
const BUCKET_SHIFT = 18;
const BUCKETS = (0x3f800000 >>> BUCKET_SHIFT) + 1;
const sums = new Float64Array(BUCKETS);
const counts = new Uint32Array(BUCKETS);

/** The last token that is kept: kept is what is heavier, or as heavy with an id that is not greater. */
export interface Cut {
  readonly weight: number;
  readonly id: number;
}

/**
 * @param weights [V] in [0, 1]
 * @param total their sum
 * @param topK at least 1; undefined: no limit
 * @param topP above 0; undefined or at least 1: no limit
 * @returns undefined when all tokens are kept
 */
export function cutOf(weights: Float32Array, total: number, topK = Infinity, topP = 1): Cut | undefined {
  const limitsCount = topK < weights.length;
  if (!limitsCount && topP >= 1) return undefined;
  const top = count(weights);
  const byCount = limitsCount ? prefix(weights, top, topK, Infinity) : { sum: total, cut: undefined };
  return topP >= 1 ? byCount.cut : prefix(weights, top, topK, topP * byCount.sum).cut;
}

/** Fills the buckets; returns the highest that is not empty. */
function count(weights: Float32Array): number {
  sums.fill(0);
  counts.fill(0);
  const bits = new Uint32Array(weights.buffer, weights.byteOffset, weights.length);
  let top = 0;
  for (let i = 0; i < bits.length; i++) {
    const bucket = bits[i]! >>> BUCKET_SHIFT;
    sums[bucket]! += weights[i]!;
    counts[bucket]! += 1;
    if (bucket > top) top = bucket;
  }
  return top;
}

/** The shortest beginning of the order with `most` tokens or a sum of at least `enough`, whichever comes first. */
function prefix(weights: Float32Array, top: number, most: number, enough: number): { readonly cut: Cut; readonly sum: number } {
  let sum = 0;
  let left = most;
  let bucket = top;
  // Down to the bucket in which the beginning ends; the last one at the latest.
  while (bucket > 0 && counts[bucket]! < left && sum + sums[bucket]! < enough) {
    sum += sums[bucket]!;
    left -= counts[bucket]!;
    bucket--;
  }
  const bits = new Uint32Array(weights.buffer, weights.byteOffset, weights.length);
  const inside = new Float32Array(counts[bucket]!);
  for (let i = 0, n = 0; n < inside.length; i++) if (bits[i]! >>> BUCKET_SHIFT === bucket) inside[n++] = weights[i]!;
  inside.sort();
  let taken = 0;
  while (taken < inside.length && taken < left && sum < enough) {
    taken++;
    sum += inside[inside.length - taken]!;
  }
  const weight = inside[inside.length - taken] ?? 0;
  let equal = 0;
  for (let i = inside.length - taken; i < inside.length && inside[i] === weight; i++) equal++;
  return { cut: { weight, id: nth(weights, weight, equal) }, sum };
}

/** The id of the n-th token (from 1) with this weight. */
function nth(weights: Float32Array, weight: number, n: number): number {
  let id = -1;
  for (let left = n; left > 0; left--) id = weights.indexOf(weight, id + 1);
  return id;
}
