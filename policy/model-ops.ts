/**
 * The transformer's differentiable building blocks. Each is one `tf.customGrad`: a hand-written gradient needs about a third of the
 * operations and memory passes of the derived one and saves fewer tensors. What the gradient needs goes through `save`: the forward scope
 * frees everything else. policy/gradients.test.ts checks each of them against finite differences. Attention is in attention.ts.
 */
import { rawOp, tf } from './tensorflow.ts';

/** tf.customGrad with the types of our functions; the library's signature knows tensors only by their base type. */
type Save = (tensors: tf.Tensor[]) => void;
export function custom(
  inputs: readonly tf.Tensor[],
  forward: (save: Save, ...inputs: tf.Tensor[]) => { value: tf.Tensor; gradFunc: (dy: tf.Tensor, saved: tf.Tensor[]) => tf.Tensor[] },
): tf.Tensor {
  return tf.customGrad((...all: unknown[]) => {
    const save = all[all.length - 1] as Save;
    const { value, gradFunc } = forward(save, ...(all.slice(0, -1) as tf.Tensor[]));
    // TensorFlow.js would keep what a gradient makes on its way until the whole backward pass is over.
    return { value, gradFunc: (dy: tf.Tensor, saved: tf.Tensor[]) => tf.tidy(() => gradFunc(dy, saved)) };
  })(...inputs);
}
/** A saved tensor; customGrad hands back exactly the list that was saved. */
export function at(saved: readonly tf.Tensor[], i: number): tf.Tensor {
  return saved[i] as tf.Tensor;
}

/**
 * compute(inputs, constants), of whose inner values nothing is kept: the gradient, by the inputs, computes them again. `compute` must use no
 * other tensor. A graph optimizer would merge the second computation with the first and so keep everything; it cannot where the first
 * input differs, by a zero that it cannot foresee: min(|dy₀|, 0).
 */
export function recomputed(
  compute: (inputs: readonly tf.Tensor[], constants: readonly tf.Tensor[]) => tf.Tensor,
  inputs: readonly tf.Tensor[],
  constants: readonly tf.Tensor[],
): tf.Tensor {
  return custom(inputs, (save, ...given) => {
    save([...given, ...constants]);
    return {
      value: compute(given, constants),
      gradFunc: (dy, saved) => {
        const zero = tf.minimum(tf.abs(tf.slice(tf.reshape(dy, [-1]), [0], [1])), 0);
        const again = [tf.add(at(saved, 0), zero), ...saved.slice(1, inputs.length)];
        // TensorFlow.js has one tape: the outer one, which is being walked, must be there again afterwards.
        const { state } = tf.engine();
        const outer = state.activeTape;
        try {
          return tf.grads((...values) => compute(values, saved.slice(inputs.length)))(again, dy);
        } finally {
          state.activeTape = outer;
        }
      },
    };
  });
}

/** Rows `index` of `x` [N,D] → [M,D]; the gradient adds up rows that were taken more than once. `index` is int32. */
export function gatherRows(x: tf.Tensor, index: tf.Tensor1D): tf.Tensor2D {
  const rows = x.shape[0];
  return custom([x], (save, table) => {
    save([index]);
    return {
      value: takeRows(table, index),
      gradFunc: (dy, saved) => [tf.unsortedSegmentSum(dy, at(saved, 0) as tf.Tensor1D, rows)],
    };
  }) as tf.Tensor2D;
}

/** Without tf.gather, which reads the indices back to the host to check them: a recorded function cannot, and a GPU would wait. */
export function takeRows(table: tf.Tensor, index: tf.Tensor, axis = 0): tf.Tensor {
  const attributes = {
    Tparams: { type: 'float32' },
    Tindices: { type: 'int32' },
    Taxis: { type: 'int32' },
    batch_dims: { int: 0 },
  } as const;
  return rawOp('GatherV2', attributes, [table, index, tf.scalar(axis, 'int32')], 1)[0] as tf.Tensor;
}

/** x scaled to a mean square of 1 over the last axis, and the factor. */
function unitOf(x: tf.Tensor, epsilon: number): { unit: tf.Tensor; inverse: tf.Tensor } {
  const inverse = tf.rsqrt(tf.add(tf.mean(tf.square(x), -1, true), epsilon));
  return { unit: tf.mul(x, inverse), inverse };
}
/** The gradient by x of `unitOf(x).unit`, from the gradient by the unit. */
function unitGradient(dUnit: tf.Tensor, unit: tf.Tensor, inverse: tf.Tensor): tf.Tensor {
  return tf.mul(inverse, tf.sub(dUnit, tf.mul(unit, tf.mean(tf.mul(dUnit, unit), -1, true))));
}

/** x / sqrt(mean(x²) + epsilon) over the last axis. */
export function normalize(x: tf.Tensor, epsilon: number): tf.Tensor {
  return custom([x], (save, v) => {
    const { unit, inverse } = unitOf(v, epsilon);
    save([unit, inverse]);
    return { value: unit, gradFunc: (dy, saved) => [unitGradient(dy, at(saved, 0), at(saved, 1))] };
  });
}

/** `normalize` · weight. `weight` has the shape of x's trailing axes. */
export function rmsNorm(x: tf.Tensor, weight: tf.Tensor, epsilon: number): tf.Tensor {
  return custom([x, weight], (save, v, g) => {
    const { unit, inverse } = unitOf(v, epsilon);
    save([unit, inverse, g]);
    return {
      value: tf.mul(unit, g),
      gradFunc: (dy, saved) => {
        const leading = Array.from({ length: dy.rank - at(saved, 2).rank }, (_, axis) => axis);
        const byUnit = unitGradient(tf.mul(dy, at(saved, 2)), at(saved, 0), at(saved, 1));
        return [byUnit, tf.sum(tf.mul(dy, at(saved, 0)), leading)];
      },
    };
  });
}

/** silu(gate) · up, elementwise. */
export function gated(gate: tf.Tensor, up: tf.Tensor): tf.Tensor2D {
  return custom([gate, up], (save, ...inputs) => {
    const [g, u] = inputs as [tf.Tensor, tf.Tensor];
    const sigmoid = tf.sigmoid(g);
    const silu = tf.mul(g, sigmoid);
    save([u, sigmoid, silu]);
    return {
      value: tf.mul(silu, u),
      gradFunc: (dy, saved) => {
        const s = at(saved, 1);
        // silu' = s + silu·(1 − s)
        const slope = tf.add(s, tf.mul(at(saved, 2), tf.sub(1, s)));
        return [tf.mul(tf.mul(dy, at(saved, 0)), slope), tf.mul(dy, at(saved, 2))];
      },
    };
  }) as tf.Tensor2D;
}

function swapHalves(x: tf.Tensor): tf.Tensor {
  const [first, second] = tf.split(x, 2, -1) as [tf.Tensor, tf.Tensor];
  return tf.concat([second, first], -1);
}

/**
 * Rotary position embedding in Hugging Face's rotate_half convention: x·cos + (−x₂, x₁)·sin. `signedSin` carries the minus sign
 * in its first half. Both tables broadcast against x and may share a factor. The gradient is the inverse rotation, times that factor.
 */
export function rope(x: tf.Tensor, cos: tf.Tensor, signedSin: tf.Tensor): tf.Tensor {
  return custom([x], (save, input) => {
    save([cos, signedSin]);
    return {
      value: tf.add(tf.mul(input, cos), tf.mul(swapHalves(input), signedSin)),
      gradFunc: (dy, saved) => [tf.sub(tf.mul(dy, at(saved, 0)), tf.mul(swapHalves(dy), at(saved, 1)))],
    };
  });
}

/** [N] log-probability of `targets` (int32) under logits = hidden·outputᵀ. hidden [N,D], output [V,D]. */
export function logprobHead(hidden: tf.Tensor, embed: tf.Tensor, targets: tf.Tensor1D): tf.Tensor1D {
  return custom([hidden, embed], (save, ...inputs) => {
    const [h, e] = inputs as [tf.Tensor2D, tf.Tensor2D];
    const [nll, dNll] = crossEntropy(tf.matMul(h, e, false, true), targets);
    save([h, e, dNll]);
    return {
      value: tf.neg(nll),
      gradFunc: (dy, saved) => headGradient(tf.mul(at(saved, 2), tf.reshape(tf.neg(dy), [-1, 1])), at(saved, 0), at(saved, 1)),
    };
  }) as tf.Tensor1D;
}

/** [N,2]: log-probability of the target and entropy of the whole distribution, natural logarithms. Arguments as `logprobHead`. */
export function logprobEntropyHead(hidden: tf.Tensor, embed: tf.Tensor, targets: tf.Tensor1D): tf.Tensor2D {
  return custom([hidden, embed], (save, ...inputs) => {
    const [h, e] = inputs as [tf.Tensor2D, tf.Tensor2D];
    const logits = tf.matMul(h, e, false, true);
    const [nll, dNll] = crossEntropy(logits, targets);
    const all = tf.logSoftmax(logits);
    const p = tf.exp(all);
    const weighted = tf.mul(p, all);
    const entropy = tf.neg(tf.sum(weighted, -1, true));
    // d entropy / d logits = −p·(log p + H)
    const dEntropy = tf.neg(tf.add(weighted, tf.mul(p, entropy)));
    save([h, e, dNll, dEntropy]);
    return {
      value: tf.concat([tf.reshape(tf.neg(nll), [-1, 1]), entropy], 1),
      gradFunc: (dy, saved) => {
        const [dLogprob, dH] = tf.split(dy, 2, 1) as [tf.Tensor, tf.Tensor];
        const dLogits = tf.sub(tf.mul(at(saved, 3), dH), tf.mul(at(saved, 2), dLogprob));
        return headGradient(dLogits, at(saved, 0), at(saved, 1));
      },
    };
  }) as tf.Tensor2D;
}

function headGradient(dLogits: tf.Tensor, hidden: tf.Tensor, embed: tf.Tensor): tf.Tensor[] {
  return [tf.matMul(dLogits, embed), tf.matMul(dLogits, hidden, true, false)];
}

/** Negative log-likelihood [N] and its derivative by the logits [N,V] in one fused operation. */
function crossEntropy(logits: tf.Tensor, targets: tf.Tensor1D): [tf.Tensor, tf.Tensor] {
  const types = { T: { type: 'float32' }, Tlabels: { type: 'int32' } } as const;
  return rawOp('SparseSoftmaxCrossEntropyWithLogits', types, [logits, targets], 2) as [tf.Tensor, tf.Tensor];
}
