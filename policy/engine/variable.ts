/**
 * A tensor that lives in the native runtime and is changed in place: weights, moments, gradients and the key-value cache. Functions refer
 * to it by name, so training and sampling work on the same memory.
 */
import { binding } from './binding.ts';
import type { HostArray, TensorId } from './binding.ts';

let next = 0;

export class Variable {
  readonly shape: readonly number[];
  /** Under this name the native runtime knows it, also from inside functions. */
  readonly name = `terminal-rsi-${next++}`;
  readonly #handle: TensorId;
  #alive = true;

  /** Starts at `data` (row-major float32), or at zero. */
  constructor(shape: readonly number[], data?: Float32Array) {
    const b = binding();
    this.shape = shape;
    this.#handle = b.executeOp(
      'VarHandleOp',
      [
        { name: 'dtype', type: b.TF_ATTR_TYPE, value: b.TF_FLOAT },
        { name: 'shape', type: b.TF_ATTR_SHAPE, value: [...shape] },
        { name: 'shared_name', type: b.TF_ATTR_STRING, value: this.name },
      ],
      [],
      1,
    )[0]!.id;
    if (data !== undefined) this.assign(data);
    else this.#fill(0);
  }

  get size(): number {
    return this.shape.reduce((a, b) => a * b, 1);
  }

  /** A copy of the values, row-major. */
  read(): Float32Array {
    const id = this.readId();
    try {
      return binding().tensorDataSync(id) as Float32Array;
    } finally {
      binding().deleteTensor(id);
    }
  }
  /** The values as a native tensor, which shares the variable's buffer until the variable is written. The caller deletes it. */
  readId(): TensorId {
    const b = binding();
    return b.executeOp('ReadVariableOp', [{ name: 'dtype', type: b.TF_ATTR_TYPE, value: b.TF_FLOAT }], [this.#handle], 1)[0]!.id;
  }
  assign(data: HostArray): void {
    if (data.length !== this.size) throw new Error(`variable of shape [${this.shape.join(',')}]: ${data.length} values given`);
    const id = binding().createTensor([...this.shape], binding().TF_FLOAT, data);
    this.#write('AssignVariableOp', id);
  }
  /** Frees the values' memory; the variable has none until the next `assign`. */
  release(): void {
    const id = binding().createTensor([0], binding().TF_FLOAT, new Float32Array());
    this.#write('AssignVariableOp', id);
  }
  zero(): void {
    this.#fill(0);
  }
  assignId(value: TensorId): void {
    this.#execute('AssignVariableOp', value);
  }
  addId(value: TensorId): void {
    this.#execute('AssignAddVariableOp', value);
  }
  /** Overwrites rows of the first axis: row `indices[i]` becomes `updates[i]`. */
  scatterId(indices: TensorId, updates: TensorId): void {
    const b = binding();
    const attributes = [
      { name: 'dtype', type: b.TF_ATTR_TYPE, value: b.TF_FLOAT },
      { name: 'Tindices', type: b.TF_ATTR_TYPE, value: b.TF_INT32 },
    ];
    b.executeOp('ResourceScatterUpdate', attributes, [this.#handle, indices, updates], 0);
  }
  /** Frees the memory. Calling it twice is harmless. */
  dispose(): void {
    if (!this.#alive) return;
    this.#alive = false;
    binding().executeOp('DestroyResourceOp', [], [this.#handle], 0);
    binding().deleteTensor(this.#handle);
  }

  #fill(value: number): void {
    const b = binding();
    const dimensions = b.createTensor([this.shape.length], b.TF_INT32, Int32Array.from(this.shape));
    const scalar = b.createTensor([], b.TF_FLOAT, Float32Array.of(value));
    const filled = b.executeOp('Fill', [], [dimensions, scalar], 1)[0]!.id;
    b.deleteTensor(dimensions);
    b.deleteTensor(scalar);
    this.#write('AssignVariableOp', filled);
  }
  #write(op: string, value: TensorId): void {
    this.#execute(op, value);
    binding().deleteTensor(value);
  }
  #execute(op: string, value: TensorId): void {
    const b = binding();
    b.executeOp(op, [{ name: 'dtype', type: b.TF_ATTR_TYPE, value: b.TF_FLOAT }], [this.#handle, value], 0);
  }
}
