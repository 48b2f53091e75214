/**
 * Causal attention of the training pass. Queries are taken in a few blocks, each of which looks only at the keys up to its own end: with
 * four blocks that leaves out 3/8 of the products and of the passes over the probabilities, which are the largest tensors of a step.
 */
import { at, custom } from './model-ops.ts';
import { tf } from './tensorflow.ts';

const MASKED = -1e9;
/** At most so many blocks of queries, and none smaller than that: more would cost more operations than they leave out work. */
const BLOCKS = 4;
const SMALLEST_BLOCK = 64;

/** The ends of the blocks of queries for sequences of `length`. */
function blockEnds(length: number): number[] {
  const size = Math.max(SMALLEST_BLOCK, Math.ceil(length / BLOCKS / 32) * 32);
  return Array.from({ length: Math.ceil(length / size) }, (_, i) => Math.min(length, (i + 1) * size));
}

/** [group·(end−start), end]: 0 where the key is not after the query, −1e9 elsewhere, for each of `group` heads. */
function causalBias(start: number, end: number, group: number): tf.Tensor {
  const rows = end - start;
  const bias = new Float32Array(rows * end);
  for (let t = 0; t < rows; t++) bias.fill(MASKED, t * end + start + t + 1, (t + 1) * end);
  return tf.tile(tf.tensor2d(bias, [rows, end]), [group, 1]);
}

/**
 * softmax(q·kᵀ)·v under the causal mask: q [N,G,T,Dh] with the scale already in it, k and v [N,T,Dh] → [N,G,T,Dh]. The G query heads share keys
 * and values. Right padding needs no mask of its own: it is always after.
 */
export function causalAttention(q: tf.Tensor, k: tf.Tensor, v: tf.Tensor): tf.Tensor {
  const [N, G, T, Dh] = q.shape as [number, number, number, number];
  const ends = blockEnds(T);
  const blocks = ends.map((end, i) => ({ start: ends[i - 1] ?? 0, end }));
  /** Queries of a block, those of all heads one below the other: [N,G·rows,Dh]. */
  const rowsOf = (x: tf.Tensor, { start, end }: { start: number; end: number }): tf.Tensor =>
    tf.reshape(blocks.length === 1 ? x : tf.slice(x, [0, 0, start, 0], [N, G, end - start, Dh]), [N, G * (end - start), Dh]);
  const upTo = (x: tf.Tensor, end: number): tf.Tensor => (end === T ? x : tf.slice(x, [0, 0, 0], [N, end, Dh]));
  const joined = (parts: readonly tf.Tensor[]): tf.Tensor => {
    const heads = parts.map((part, i) => tf.reshape(part, [N, G, blocks[i]!.end - blocks[i]!.start, Dh]));
    return heads.length === 1 ? (heads[0] as tf.Tensor) : tf.concat(heads, 2);
  };
  /** Sums over the keys' prefixes of the blocks, [N,end,Dh] each → [N,T,Dh]. */
  const overPrefixes = (parts: readonly tf.Tensor[]): tf.Tensor =>
    parts.length === 1
      ? (parts[0] as tf.Tensor)
      : tf.addN(
          parts.map((part, i) =>
            ends[i] === T
              ? part
              : tf.pad(part, [
                  [0, 0],
                  [0, T - ends[i]!],
                  [0, 0],
                ]),
          ),
        );

  return custom([q, k, v], (save, ...inputs) => {
    const [queries, keys, values] = inputs as [tf.Tensor, tf.Tensor, tf.Tensor];
    const made = blocks.map((block) => {
      const query = rowsOf(queries, block);
      const [key, value] = [upTo(keys, block.end), upTo(values, block.end)];
      const p = tf.softmax(tf.add(tf.matMul(query, key, false, true), causalBias(block.start, block.end, G)));
      return [query, key, value, p, tf.matMul(p, value)] as const;
    });
    save(made.flat());
    return {
      value: joined(made.map(([, , , , out]) => out)),
      gradFunc: (dy, saved) => {
        const grads = blocks.map((block, i) => {
          const [query, key, value, p, out] = [0, 1, 2, 3, 4].map((j) => at(saved, 5 * i + j)) as [
            tf.Tensor,
            tf.Tensor,
            tf.Tensor,
            tf.Tensor,
            tf.Tensor,
          ];
          const dOut = rowsOf(dy, block);
          const rowDot = tf.sum(tf.mul(dOut, out), -1, true);
          const dScores = tf.mul(p, tf.sub(tf.matMul(dOut, value, false, true), rowDot));
          return {
            query: tf.matMul(dScores, key),
            key: tf.matMul(dScores, query, true, false),
            value: tf.matMul(p, dOut, true, false),
          };
        });
        return [
          joined(grads.map(({ query }) => query)),
          overPrefixes(grads.map(({ key }) => key)),
          overPrefixes(grads.map(({ value }) => value)),
        ];
      },
    };
  });
}
