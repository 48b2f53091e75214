/**
 * From a batch of sequences to what a step takes. Shapes are rounded up to few sizes, because recording a function for one costs as much as
 * a few steps: rows to powers of 2, lengths to multiples of 64 (coarser beyond 1,024), predicted tokens to eighths of the batch. What fills up has
 * weight 0 and lies behind or below everything that counts, so it changes results by rounding only. Rows are dealt out to lanes, which
 * compute side by side (engine/step-function.ts). No TensorFlow here: workers use it too.
 */
import type { HostTensor } from './engine/step-function.ts';
import type { ModelConfig, SequenceBatch } from './types.ts';

/** Shares of a batch's positions to which the number of predicted tokens is rounded up. */
const PREDICTED_SHARES = 8;
const SHORTEST = 32;
const LENGTH_STEP = 64;

/** Padded length of a sequence of `length` tokens. */
export function bucketLength(length: number): number {
  if (length <= SHORTEST) return SHORTEST;
  const step = Math.max(LENGTH_STEP, 2 ** Math.floor(Math.log2(length)) / 8);
  return Math.ceil(length / step) * step;
}
/** Padded rows of a batch of `rows`. */
export function bucketRows(rows: number): number {
  return 2 ** Math.ceil(Math.log2(rows));
}
/** How many sequences of `length` a budget of padded tokens holds, without rows that only fill up; at least one. */
export function rowsWithin(budget: number, length: number): number {
  return 2 ** Math.max(0, Math.floor(Math.log2(budget / bucketLength(length))));
}

/** One lane's rows of a checked batch, in bucketed shape. */
export interface PreparedLane {
  /** Flat positions of the predicted tokens in the batch as it was given (row · length + column), ascending. */
  readonly predicted: Int32Array;
  readonly inputs: {
    /** [B,T] int32. */
    readonly tokens: HostTensor;
    /** [N] int32: flat position in [B,T] before each predicted token. */
    readonly before: HostTensor;
    /** [N] int32. */
    readonly targets: HostTensor;
    /** [N] 1 for a predicted token, 0 for what fills up. */
    readonly counts: HostTensor;
  };
  /** The entries of a [B·T] array at the predicted tokens, [N], 0 for what fills up. */
  pick(values: readonly number[]): HostTensor;
}

export interface PreparedBatch {
  /** How many tokens are predicted. */
  readonly predicted: number;
  /** Of equal shapes; row r is in lane r mod their number. Fewer than asked where rows are fewer. */
  readonly lanes: readonly PreparedLane[];
}

/** Deals the rows out to at most `lanes` lanes. Checks shapes, token ids and mask. Throws with the place and value of what is wrong. */
export function prepareBatch(batch: SequenceBatch, config: ModelConfig, lanes = 1): PreparedBatch {
  const { rows, length } = batch;
  const predicted = predictedPositions(batch, config);
  const count = Math.max(1, Math.min(lanes, rows));
  // Neighbours are alike in length: dealt out one by one, each lane gets its share of the tokens that count.
  const own = Array.from({ length: count }, (_, lane) => predicted.filter((position) => Math.floor(position / length) % count === lane));
  const [B, T] = [bucketRows(Math.ceil(rows / count)), bucketLength(length)];
  const step = Math.ceil((B * T) / PREDICTED_SHARES);
  const N = Math.ceil(Math.max(1, ...own.map((positions) => positions.length)) / step) * step;
  const prepared = own.map((positions, lane) => {
    const tokens = new Int32Array(B * T);
    for (let row = lane; row < rows; row += count) {
      tokens.set(batch.tokens.slice(row * length, (row + 1) * length), Math.floor(row / count) * T);
    }
    const before = new Int32Array(N);
    const targets = new Int32Array(N);
    positions.forEach((position, i) => {
      before[i] = Math.floor(Math.floor(position / length) / count) * T + (position % length) - 1;
      targets[i] = batch.tokens[position] as number;
    });
    const inputs = {
      tokens: { shape: [B, T], data: tokens },
      before: { shape: [N], data: before },
      targets: { shape: [N], data: targets },
      counts: { shape: [N], data: new Float32Array(N).fill(1, 0, positions.length) },
    };
    const pick = (values: readonly number[]): HostTensor => {
      const data = new Float32Array(N);
      positions.forEach((position, i) => (data[i] = values[position] as number));
      return { shape: [N], data };
    };
    return { predicted: positions, inputs, pick };
  });
  return { predicted: predicted.length, lanes: prepared };
}

function predictedPositions(batch: SequenceBatch, config: ModelConfig): Int32Array {
  const { rows, length } = batch;
  const size = rows * length;
  if (batch.tokens.length !== size || batch.mask.length !== size) {
    throw new Error(
      `batch of ${rows}x${length}: ${batch.tokens.length} tokens and ${batch.mask.length} mask values, expected ${size} of each`,
    );
  }
  if (length > config.max_position_embeddings) {
    throw new Error(`batch length ${length}: the model has ${config.max_position_embeddings} positions`);
  }
  const positions: number[] = [];
  const place = (i: number): string => `row ${Math.floor(i / length)}, column ${i % length}`;
  for (let i = 0; i < size; i++) {
    const token = batch.tokens[i] as number;
    if (!Number.isInteger(token) || token < 0 || token >= config.vocab_size) {
      throw new Error(`token ${token} at ${place(i)}: expected 0 to ${config.vocab_size - 1}`);
    }
    if (batch.mask[i] === 0) continue;
    if (batch.mask[i] !== 1) throw new Error(`mask ${batch.mask[i]} at ${place(i)}: expected 0 or 1`);
    if (i % length === 0) throw new Error(`mask 1 at ${place(i)}: nothing precedes the first token, so it cannot be predicted`);
    positions.push(i);
  }
  return Int32Array.from(positions);
}
