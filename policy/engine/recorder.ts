/**
 * Records what an eager description executes as the body of a TensorFlow function. While it records, the operations really run: shapes,
 * branches and gradients are those of an ordinary eager call, and the addon's `executeOp` notes each operation on its way.
 *
 * Rules for what is recorded: every value comes from an argument, or from host data made inside (which becomes a constant); nothing is
 * read back to the host. A broken rule is an error that names the operation.
 */
import { backend } from './binding.ts';
import type { Binding, HostArray, OpAttribute, TensorId } from './binding.ts';
import { shapeAttr } from './function-proto.ts';
import type { Attr, Node } from './function-proto.ts';
import { outputReference } from './op-outputs.ts';

/** Constants up to this many values are shared when they are equal: shapes and axes recur by the hundred. */
const SHARED_CONSTANT_SIZE = 64;

export class Recorder {
  readonly nodes: Node[] = [];
  readonly #binding: Binding;
  readonly #known = new Map<TensorId, string>();
  readonly #constants = new Map<string, string>();

  constructor() {
    this.#binding = backend().binding;
  }

  /** Declares that the tensor `id` is the value `reference` of the function. */
  know(id: TensorId, reference: string): void {
    this.#known.set(id, reference);
  }
  /** The function's name for a tensor. */
  reference(id: TensorId, place: string): string {
    const found = this.#known.get(id);
    if (found === undefined)
      throw new Error(`recording ${place}: it uses a tensor that is neither an argument nor made inside the function`);
    return found;
  }
  /** Adds a node that was not executed; returns its name. */
  node(op: string, input: readonly string[], attr: Readonly<Record<string, Attr>>): string {
    const name = `n${this.nodes.length}`;
    this.nodes.push({ name, op, input, attr });
    return name;
  }

  /** Runs `body` and records what it executes. */
  during<T>(body: () => T): T {
    const real = this.#binding;
    const recording: Binding = Object.create(real, {
      createTensor: { value: (shape: readonly number[], dtype: number, data: HostArray) => this.#create(shape, dtype, data) },
      executeOp: {
        value: (op: string, attributes: readonly OpAttribute[], inputs: readonly TensorId[], outputs: number) =>
          this.#execute(op, attributes, inputs, outputs),
      },
      tensorDataSync: {
        value: () => {
          throw new Error('recording: a value is read back to the host, expected tensors only');
        },
      },
    }) as Binding;
    backend().binding = recording;
    try {
      return body();
    } finally {
      backend().binding = real;
    }
  }

  #create(shape: readonly number[], dtype: number, data: HostArray): TensorId {
    const id = this.#binding.createTensor(shape, dtype, data);
    const bytes = contentOf(this.#binding, dtype, data);
    const key = data.length <= SHARED_CONSTANT_SIZE ? `${dtype}/${shape.join()}/${Buffer.from(bytes).toString('latin1')}` : undefined;
    let reference = key === undefined ? undefined : this.#constants.get(key);
    if (reference === undefined) {
      const value: Attr = { tensor: { dtype, tensor_shape: shapeAttr(shape), tensor_content: bytes } };
      reference = outputReference(this.node('Const', [], { dtype: { type: dtype }, value }), 'Const', 0);
      if (key !== undefined) this.#constants.set(key, reference);
    }
    this.#known.set(id, reference);
    return id;
  }

  #execute(op: string, attributes: readonly OpAttribute[], inputs: readonly TensorId[], count: number): ReturnType<Binding['executeOp']> {
    const outputs = this.#binding.executeOp(op, attributes, inputs, count);
    const references = inputs.map((id, i) => this.reference(id, `${op}, input ${i}`));
    const attr = Object.fromEntries(attributes.map((attribute) => [attribute.name, attrOf(this.#binding, attribute)]));
    const name = this.node(op, references, attr);
    outputs.forEach((output, i) => this.#known.set(output.id, outputReference(name, op, i)));
    return outputs;
  }
}

function contentOf(b: Binding, dtype: number, data: HostArray | readonly number[]): Uint8Array {
  // TensorFlow.js hands over plain arrays and typed arrays of other types; the native side reads them by `dtype`.
  const typed =
    dtype === b.TF_FLOAT
      ? Float32Array.from(data)
      : dtype === b.TF_INT32
        ? Int32Array.from(data)
        : dtype === b.TF_BOOL
          ? Uint8Array.from(data)
          : undefined;
  if (typed === undefined) throw new Error(`recording: a constant of type ${dtype}, expected float32, int32 or bool`);
  return new Uint8Array(typed.buffer);
}

function attrOf(b: Binding, { name, type, value }: OpAttribute): Attr {
  switch (type) {
    case b.TF_ATTR_TYPE:
      return Array.isArray(value) ? { list: { type: value as number[] } } : { type: value as number };
    case b.TF_ATTR_INT:
      return Array.isArray(value) ? { list: { i: value as number[] } } : { i: value as number };
    case b.TF_ATTR_FLOAT:
      return { f: value as number };
    case b.TF_ATTR_BOOL:
      return { b: value as boolean };
    case b.TF_ATTR_STRING:
      return { s: Buffer.from(value as string) };
    case b.TF_ATTR_SHAPE:
      return { shape: shapeAttr(value as number[]) };
    default:
      throw new Error(`recording: attribute ${name} of type ${type} is not known`);
  }
}
