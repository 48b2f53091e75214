/**
 * Runs a description written with TensorFlow.js operations, either as it stands (eager) or recorded once per shape and replayed as one
 * TensorFlow function (graph). The description is the only source of both.
 */
import { tf } from '../tensorflow.ts';
import { backend, binding, idOf } from './binding.ts';
import type { HostArray, OutputInfo, TensorId } from './binding.ts';
import { announceFallback } from './mode.ts';
import type { EngineMode } from './mode.ts';
import { bindFunction, recordFunction } from './recording.ts';
import type { RecordedFunction, Signature } from './recording.ts';
import type { Variable } from './variable.ts';

/** A value on the host, row-major. */
export interface HostTensor {
  readonly shape: readonly number[];
  readonly data: HostArray;
}
/** A value in the native runtime: an output that goes into another step without coming to the host. Whoever got it frees it. */
export interface NativeTensor {
  readonly shape: readonly number[];
  readonly dtype: number;
  readonly id: TensorId;
}
export type Tensors = Readonly<Record<string, tf.Tensor>>;
export type Inputs = Readonly<Record<string, HostTensor | NativeTensor>>;
export type Variables = Readonly<Record<string, Variable>>;

/** What a description gives back: outputs, and changes of variables by name, made after everything was computed from the old values. */
export interface StepResult {
  readonly outputs: readonly tf.Tensor[];
  readonly assign?: Tensors;
  readonly add?: Tensors;
  /** Rows of the first axis that are overwritten; among equal indices any update may win. */
  readonly scatter?: Readonly<Record<string, { readonly indices: tf.Tensor; readonly updates: tf.Tensor }>>;
}
export interface StepDescription {
  /** Names the computation; together with all shapes it identifies the recorded function. Everything else that `build` depends on must be in it. */
  readonly key: string;
  /** Pure: every value comes from the arguments or is a constant, nothing is read back. */
  readonly build: (inputs: Tensors, variables: Tensors) => StepResult;
  /** Compile with XLA: fused operations after a compilation of seconds for each shape. */
  readonly xla?: boolean;
  /** Variables that are written and not read. */
  readonly writeOnly?: ReadonlySet<string>;
}

/** Computations by key and shapes, shared by all models of one shape. */
const recorded = new Map<string, RecordedFunction>();

/** A description together with the variables it works on: one set per lane. Lanes are independent and run side by side in graph mode. */
export class StepFunction {
  readonly #description: StepDescription;
  readonly #lanes: readonly Variables[];
  readonly #bound = new Map<string, { readonly name: string; readonly outputs: number }>();
  #mode: EngineMode;

  constructor(mode: EngineMode, description: StepDescription, lanes: readonly Variables[]) {
    this.#mode = mode;
    this.#description = description;
    this.#lanes = lanes;
  }
  get mode(): EngineMode {
    return this.#mode;
  }

  /** Runs one lane and brings its outputs to the host. */
  runToHost(inputs: Inputs): HostArray[] {
    return this.run([inputs])[0]!.map(takeToHost);
  }

  /** Runs every lane on its inputs, of the same names and shapes in all lanes; the outputs per lane, which the caller frees. */
  run(inputs: readonly Inputs[]): NativeTensor[][] {
    if (inputs.length !== this.#lanes.length)
      throw new Error(`step ${this.#description.key}: ${inputs.length} inputs for ${this.#lanes.length} lanes`);
    const uploaded: TensorId[] = [];
    const native = inputs.map((lane) =>
      Object.fromEntries(
        Object.entries(lane).map(([name, value]) => {
          if ('id' in value) return [name, value];
          const tensor = upload(value);
          uploaded.push(tensor.id);
          return [name, tensor];
        }),
      ),
    );
    try {
      return this.#mode === 'graph' ? this.#runGraph(native) : this.#runEager(native);
    } finally {
      for (const id of uploaded) binding().deleteTensor(id);
    }
  }

  /** Forgets the functions that name this object's variables. The variables belong to the caller. */
  dispose(): void {
    for (const { name } of this.#bound.values()) binding().removeFunction!(name);
    this.#bound.clear();
  }

  #runGraph(lanes: readonly Readonly<Record<string, NativeTensor>>[]): NativeTensor[][] {
    const first = lanes[0]!;
    const shapes = Object.entries(first).map(([name, { shape }]) => `${name}[${shape.join()}]`);
    const key = shapes.join('|');
    let bound = this.#bound.get(key);
    const unknown = bound === undefined;
    try {
      bound ??= this.#bind(key, first);
      const ids = lanes.flatMap((lane) => Object.values(lane).map(({ id }) => id));
      const outputs = binding().executeOp(bound.name, [], ids, bound.outputs * lanes.length);
      const perLane = bound.outputs;
      return lanes.map((_, i) => outputs.slice(i * perLane, (i + 1) * perLane));
    } catch (error) {
      // What has run once and fails later is an error of that run; what cannot even start has changed nothing yet.
      if (!unknown) throw error;
      announceFallback(`${this.#description.key} (${key}): ${(error as Error).message.slice(0, 500)}`);
      this.#mode = 'eager';
      return this.#runEager(lanes);
    }
  }

  #bind(key: string, inputs: Readonly<Record<string, NativeTensor>>): { name: string; outputs: number } {
    const variables = this.#lanes[0]!;
    const signature: Signature = {
      values: Object.entries(inputs).map(([name, { dtype }]) => ({ name, type: dtype })),
      variables: Object.keys(variables),
    };
    const shapes = Object.entries(variables).map(([name, { shape }]) => `${name}[${shape.join()}]`);
    const full = `${this.#description.key}|${this.#description.xla === true}|${key}|${shapes.join('|')}`;
    let inner = recorded.get(full);
    if (inner === undefined) {
      tf.tidy(() => {
        const { given, read } = this.#operands(inputs, variables);
        inner = recordFunction(this.#description, signature, given, read);
      });
      recorded.set(full, inner!);
    }
    const name = bindFunction(inner!, signature, this.#lanes, this.#description.xla === true);
    const bound = { name, outputs: inner!.outputTypes.length };
    this.#bound.set(key, bound);
    return bound;
  }

  #runEager(lanes: readonly Readonly<Record<string, NativeTensor>>[]): NativeTensor[][] {
    return lanes.map((inputs, i) => this.#eagerLane(inputs, this.#lanes[i]!));
  }

  #eagerLane(inputs: Readonly<Record<string, NativeTensor>>, variables: Variables): NativeTensor[] {
    const kept: NativeTensor[] = [];
    tf.tidy(() => {
      const { given, read } = this.#operands(inputs, variables);
      const result = this.#description.build(given, read);
      for (const output of result.outputs)
        kept.push(share(idOf(output), output.dtype === 'int32' ? binding().TF_INT32 : binding().TF_FLOAT));
      for (const [name, value] of Object.entries(result.assign ?? {})) variables[name]!.assignId(idOf(value));
      for (const [name, value] of Object.entries(result.add ?? {})) variables[name]!.addId(idOf(value));
      for (const [name, { indices, updates }] of Object.entries(result.scatter ?? {})) {
        variables[name]!.scatterId(idOf(indices), idOf(updates));
      }
    });
    return kept;
  }

  /** Inputs and variables as tensors of TensorFlow.js, which the surrounding tf.tidy frees. */
  #operands(inputs: Readonly<Record<string, NativeTensor>>, variables: Variables): { given: Tensors; read: Tensors } {
    const wrap = (tensor: NativeTensor): tf.Tensor =>
      backend().createOutputTensor({ ...tensor, shape: [...tensor.shape] } satisfies OutputInfo);
    const given = Object.fromEntries(Object.entries(inputs).map(([name, { id, dtype }]) => [name, wrap(share(id, dtype))]));
    const read = Object.fromEntries(
      Object.entries(variables)
        .filter(([name]) => this.#description.writeOnly?.has(name) !== true)
        .map(([name, variable]) => [name, wrap({ id: variable.readId(), shape: variable.shape, dtype: binding().TF_FLOAT })]),
    );
    return { given, read };
  }
}

/** The values, row-major; frees the native tensor. */
export function takeToHost(tensor: NativeTensor): HostArray {
  const values = binding().tensorDataSync(tensor.id);
  binding().deleteTensor(tensor.id);
  return values;
}
export function free(tensor: NativeTensor): void {
  binding().deleteTensor(tensor.id);
}

function upload({ shape, data }: HostTensor): NativeTensor {
  const b = binding();
  const dtype = data instanceof Int32Array ? b.TF_INT32 : b.TF_FLOAT;
  return { id: b.createTensor([...shape], dtype, data), shape, dtype };
}

/** Another handle on the same buffer. */
function share(id: TensorId, dtype: number): NativeTensor {
  const b = binding();
  return b.executeOp('Identity', [{ name: 'T', type: b.TF_ATTR_TYPE, value: dtype }], [id], 1)[0]!;
}
