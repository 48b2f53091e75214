/**
 * Top-k and top-p: which tokens of a row may be drawn. Tokens stand in one order, by weight from high to low and by id from
 * low to high where weights are equal; both cuts keep a beginning of it, so ties are decided by the smaller id and the set is
 * exact: top-k its first k, top-p (Holtzman et al. 2020) its shortest beginning that holds at least p of what top-k left.
 *
 * A sort of the vocabulary would cost far more than the draw. Instead a lower bound drops most tokens, the others are counted
 * into buckets by the high bits of their float32 pattern, which orders non-negative numbers as their values do, and only the
 * bucket in which the cut lies is sorted.
 */

/** The tokens that may be drawn, by id from low to high; views of scratch memory, valid until the next call. */
export interface Kept {
  readonly ids: Int32Array;
  readonly weights: Float32Array;
}

/** The last token of a beginning: kept is what is heavier, or as heavy and not behind it. `position` counts candidates. */
interface Cut {
  readonly weight: number;
  readonly position: number;
  readonly sum: number;
}

/** Leaves the exponent and 5 bits of mantissa of a weight in [0, 1]. */
const BUCKET_SHIFT = 18;
const BUCKETS = (0x3f800000 >>> BUCKET_SHIFT) + 1;
const sums = new Float64Array(BUCKETS);
const counts = new Uint32Array(BUCKETS);
const BLOCK = 256;
/** Candidates, grown to the largest vocabulary seen. */
let ids = new Int32Array(0);
let values = new Float32Array(0);

/**
 * @param weights [V] in [0, 1]
 * @param total their sum
 * @param topK at least 1; Infinity: no limit
 * @param topP above 0; 1: no limit
 */
export function cutTokens(weights: Float32Array, total: number, topK: number, topP: number): Kept {
  const count = gather(weights, floorOf(weights, total, topK, topP));
  const candidates = values.subarray(0, count);
  const top = fillBuckets(candidates);
  const byCount = topK < weights.length ? beginning(candidates, top, topK, Infinity) : undefined;
  const cut = topP < 1 ? beginning(candidates, top, topK, topP * (byCount?.sum ?? total)) : byCount;
  return keep(candidates, cut);
}

/** A weight that every kept token reaches. */
function floorOf(weights: Float32Array, total: number, topK: number, topP: number): number {
  // V tokens below (1 − p)·total/V hold less than (1 − p)·total together: p is reached without them. The factor is for rounding.
  if (topK >= weights.length) return (0.999 * (1 - topP) * total) / weights.length;
  // k blocks have a token as heavy as the k-th heaviest of the blocks' maxima.
  const maxima = new Float32Array(Math.floor(weights.length / BLOCK));
  if (topK > maxima.length) return 0;
  for (let block = 0; block < maxima.length; block++) {
    let max = 0;
    for (let i = block * BLOCK; i < (block + 1) * BLOCK; i++) if (weights[i]! > max) max = weights[i]!;
    maxima[block] = max;
  }
  return maxima.sort()[maxima.length - topK]!;
}

/** Takes the tokens of at least `floor` as candidates; returns their number. */
function gather(weights: Float32Array, floor: number): number {
  if (ids.length < weights.length) {
    ids = new Int32Array(weights.length);
    values = new Float32Array(weights.length);
  }
  let count = 0;
  for (let i = 0; i < weights.length; i++) {
    if (weights[i]! < floor) continue;
    ids[count] = i;
    values[count++] = weights[i]!;
  }
  return count;
}

function bitsOf(weights: Float32Array): Uint32Array {
  return new Uint32Array(weights.buffer, weights.byteOffset, weights.length);
}

/** Returns the highest bucket that is not empty. */
function fillBuckets(candidates: Float32Array): number {
  sums.fill(0);
  counts.fill(0);
  const bits = bitsOf(candidates);
  let top = 0;
  for (let i = 0; i < bits.length; i++) {
    const bucket = bits[i]! >>> BUCKET_SHIFT;
    sums[bucket]! += candidates[i]!;
    counts[bucket]! += 1;
    if (bucket > top) top = bucket;
  }
  return top;
}

/** The shortest beginning of the order with `most` tokens or a sum of at least `enough`, whichever comes first; else everything. */
function beginning(candidates: Float32Array, top: number, most: number, enough: number): Cut {
  let sum = 0;
  let left = most;
  let bucket = top;
  // Down to the bucket in which the beginning ends.
  while (bucket > 0 && counts[bucket]! < left && sum + sums[bucket]! < enough) {
    sum += sums[bucket]!;
    left -= counts[bucket]!;
    bucket--;
  }
  const bits = bitsOf(candidates);
  const inside = new Float32Array(counts[bucket]!);
  for (let i = 0, n = 0; n < inside.length; i++) if (bits[i]! >>> BUCKET_SHIFT === bucket) inside[n++] = candidates[i]!;
  inside.sort();
  let taken = 0;
  while (taken < inside.length && taken < left && sum < enough) sum += inside[inside.length - ++taken]!;
  const weight = inside[inside.length - taken] ?? 0;
  let position = -1;
  for (let i = inside.length - taken; inside[i] === weight; i++) position = candidates.indexOf(weight, position + 1);
  return { weight, position, sum };
}

/** Moves the kept candidates to the front. */
function keep(candidates: Float32Array, cut: Cut | undefined): Kept {
  if (cut === undefined) return { ids: ids.subarray(0, candidates.length), weights: candidates };
  let count = 0;
  for (let i = 0; i < candidates.length; i++) {
    const weight = candidates[i]!;
    if (weight < cut.weight || (weight === cut.weight && i > cut.position)) continue;
    ids[count] = ids[i]!;
    candidates[count++] = weight;
  }
  return { ids: ids.subarray(0, count), weights: candidates.subarray(0, count) };
}
