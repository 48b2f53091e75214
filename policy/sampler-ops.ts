/**
 * TensorFlow operations by raw tensor id, without TensorFlow.js's tensor objects, tapes and scopes: a decode step is
 * some 130 tiny operations, and the wrapper costs as much as the operations themselves. An id is owned by whoever made
 * it; `scope` frees everything made inside except what it returns.
 */
import { tf } from './tensorflow.ts';

export type TensorId = number;

interface OpAttribute {
  readonly name: string;
  readonly type: number;
  readonly value: boolean | number;
}
interface Binding {
  readonly TF_FLOAT: number;
  readonly TF_INT32: number;
  readonly TF_ATTR_BOOL: number;
  readonly TF_ATTR_INT: number;
  readonly TF_ATTR_TYPE: number;
  createTensor(shape: readonly number[], dtype: number, data: Float32Array | Int32Array): TensorId;
  deleteTensor(id: TensorId): void;
  tensorDataSync(id: TensorId): Float32Array | Int32Array;
  executeOp(name: string, attributes: readonly OpAttribute[], inputs: readonly TensorId[], outputs: number): { readonly id: TensorId }[];
  getNumOfTensors(): number;
}

export class RawOps {
  readonly #binding: Binding;
  readonly #adjoint: readonly OpAttribute[];
  readonly #keepDims: readonly OpAttribute[];
  readonly #toFloat: readonly OpAttribute[];
  #made: TensorId[] | undefined;

  constructor() {
    // tfjs-node keeps its native binding as a public field that its type declarations do not mention.
    this.#binding = (tf.backend() as unknown as { binding: Binding }).binding;
    const b = this.#binding;
    this.#adjoint = [{ name: 'adj_y', type: b.TF_ATTR_BOOL, value: true }];
    this.#keepDims = [{ name: 'keep_dims', type: b.TF_ATTR_BOOL, value: true }];
    this.#toFloat = [{ name: 'DstT', type: b.TF_ATTR_TYPE, value: b.TF_FLOAT }];
  }

  /** Number of tensors alive in the native runtime. */
  alive(): number {
    return this.#binding.getNumOfTensors();
  }
  floats(shape: readonly number[], data: Float32Array): TensorId {
    return this.#own(this.#binding.createTensor(shape, this.#binding.TF_FLOAT, data));
  }
  ints(shape: readonly number[], data: Int32Array): TensorId {
    return this.#own(this.#binding.createTensor(shape, this.#binding.TF_INT32, data));
  }
  free(id: TensorId): void {
    this.#binding.deleteTensor(id);
  }
  read(id: TensorId): Float32Array {
    return this.#binding.tensorDataSync(id) as Float32Array;
  }
  /** Runs `body` and frees every tensor made in it, also when it throws. */
  scope<T>(body: () => T): T {
    const outer = this.#made;
    this.#made = [];
    try {
      return body();
    } finally {
      for (const id of this.#made) this.#binding.deleteTensor(id);
      this.#made = outer;
    }
  }
  #own(id: TensorId): TensorId {
    this.#made?.push(id);
    return id;
  }
  #one(name: string, inputs: readonly TensorId[], attributes: readonly OpAttribute[] = []): TensorId {
    // Type attributes are left out: the eager runtime infers them from the inputs.
    return this.#own(this.#binding.executeOp(name, attributes, inputs, 1)[0]!.id);
  }

  add = (a: TensorId, b: TensorId): TensorId => this.#one('AddV2', [a, b]);
  mul = (a: TensorId, b: TensorId): TensorId => this.#one('Mul', [a, b]);
  sub = (a: TensorId, b: TensorId): TensorId => this.#one('Sub', [a, b]);
  div = (a: TensorId, b: TensorId): TensorId => this.#one('RealDiv', [a, b]);
  square = (a: TensorId): TensorId => this.#one('Square', [a]);
  rsqrt = (a: TensorId): TensorId => this.#one('Rsqrt', [a]);
  sigmoid = (a: TensorId): TensorId => this.#one('Sigmoid', [a]);
  exp = (a: TensorId): TensorId => this.#one('Exp', [a]);
  greater = (a: TensorId, b: TensorId): TensorId => this.#one('Greater', [a, b]);
  toFloat = (a: TensorId): TensorId => this.#one('Cast', [a], this.#toFloat);
  matMul = (a: TensorId, b: TensorId): TensorId => this.#one('MatMul', [a, b]);
  batchMatMul = (a: TensorId, b: TensorId): TensorId => this.#one('BatchMatMulV2', [a, b]);
  /** a · bᵀ over the last two axes. */
  batchMatMulTransposed = (a: TensorId, b: TensorId): TensorId => this.#one('BatchMatMulV2', [a, b], this.#adjoint);
  /** Mean over `axes` (an int tensor), which stay with length 1. */
  mean = (a: TensorId, axes: TensorId): TensorId => this.#one('Mean', [a, axes], this.#keepDims);
  sum = (a: TensorId, axes: TensorId): TensorId => this.#one('Sum', [a, axes], this.#keepDims);
  max = (a: TensorId, axes: TensorId): TensorId => this.#one('Max', [a, axes], this.#keepDims);
  reshape = (a: TensorId, shape: TensorId): TensorId => this.#one('Reshape', [a, shape]);
  transpose = (a: TensorId, permutation: TensorId): TensorId => this.#one('Transpose', [a, permutation]);
  /** Entries of `a` by index along `axis`. */
  gather = (a: TensorId, indices: TensorId, axis: TensorId): TensorId => this.#one('GatherV2', [a, indices, axis]);
  /** A part of `a`; along axis 0 it shares a's buffer. */
  slice = (a: TensorId, begin: TensorId, size: TensorId): TensorId => this.#one('Slice', [a, begin, size]);
  fill = (shape: TensorId, value: TensorId): TensorId => this.#one('Fill', [shape, value]);
  /**
   * Overwrites rows of `target` in place. The output shares the buffer of the input by design of the kernel, so every
   * reshaped view of `target` sees the change; that is what makes a cache without copies possible in eager mode.
   */
  writeRows(target: TensorId, rows: TensorId, values: TensorId): void {
    this.#one('InplaceUpdate', [target, rows, values]);
  }
  /** Parts of sizes `sizes` (an int tensor) along `axis`. */
  split(a: TensorId, sizes: TensorId, axis: TensorId, parts: number): TensorId[] {
    const attributes = [{ name: 'num_split', type: this.#binding.TF_ATTR_INT, value: parts }];
    return this.#binding.executeOp('SplitV', attributes, [a, sizes, axis], parts).map((output) => this.#own(output.id));
  }
}
