/**
 * Runs a description written with TensorFlow.js operations, either as it stands (eager) or recorded once per shape and replayed as one
 * TensorFlow function. Both ways compute the same; the description is the only source.
 */
import { tf } from '../tensorflow.ts';
import { backend, binding, idOf } from './binding.ts';
import type { HostArray, OutputInfo, TensorId } from './binding.ts';
import { encodeFunction } from './function-proto.ts';
import { outputReference } from './op-outputs.ts';
import { Recorder } from './recorder.ts';
import type { Variable } from './variable.ts';

/** A value handed over from the host, row-major. */
export interface HostTensor {
  readonly shape: readonly number[];
  readonly data: HostArray;
}
export type Tensors = Readonly<Record<string, tf.Tensor>>;
/** What a description gives back. */
export interface StepResult {
  /** Read back to the host, in this order. */
  readonly outputs: readonly tf.Tensor[];
  /** New values of variables, by name. */
  readonly assign?: Readonly<Record<string, tf.Tensor>>;
  /** Values added to variables, by name. */
  readonly add?: Readonly<Record<string, tf.Tensor>>;
}
export interface StepDescription {
  /** Names the computation; with the shapes of inputs and variables it identifies the recorded function. Everything that `build` depends on must be in it. */
  readonly key: string;
  readonly build: (inputs: Tensors, variables: Tensors) => StepResult;
  /** Compile with XLA: seconds for the first call of each shape, then fused operations. */
  readonly xla?: boolean;
  /** Variables that are only written (`add`, `assign`) and never read. */
  readonly writeOnly?: ReadonlySet<string>;
}

interface Recorded {
  readonly name: string;
  readonly outputs: number;
}
const recorded = new Map<string, Recorded>();
let serial = 0;

export type EngineMode = 'graph' | 'eager';

/** Executes the description; returns its outputs' values. */
export function runStep(
  mode: EngineMode,
  description: StepDescription,
  inputs: Readonly<Record<string, HostTensor>>,
  variables: Readonly<Record<string, Variable>>,
): HostArray[] {
  const ids = Object.values(inputs).map(upload);
  try {
    const outputs = mode === 'graph' ? runGraph(description, inputs, ids, variables) : runEager(description, inputs, ids, variables);
    return outputs.map((id) => {
      const values = binding().tensorDataSync(id);
      binding().deleteTensor(id);
      return values;
    });
  } finally {
    for (const id of ids) binding().deleteTensor(id);
  }
}

/** Number of recorded functions. */
export function recordedFunctions(): number {
  return recorded.size;
}

function upload({ shape, data }: HostTensor): TensorId {
  const b = binding();
  return b.createTensor([...shape], data instanceof Int32Array ? b.TF_INT32 : b.TF_FLOAT, data);
}

function runGraph(
  description: StepDescription,
  inputs: Readonly<Record<string, HostTensor>>,
  ids: readonly TensorId[],
  variables: Readonly<Record<string, Variable>>,
): TensorId[] {
  const shapes = [...Object.entries(inputs), ...Object.entries(variables)].map(([name, { shape }]) => `${name}[${shape.join()}]`);
  const key = `${description.key}|${shapes.join('|')}`;
  let found = recorded.get(key);
  if (found === undefined) {
    found = record(description, inputs, ids, variables);
    recorded.set(key, found);
  }
  const handles = Object.values(variables).map(({ handle }) => handle);
  return binding()
    .executeOp(found.name, [], [...ids, ...handles], found.outputs)
    .map(({ id }) => id);
}

/** A tensor of TensorFlow.js for a native one; disposing it deletes the native one. */
function wrap(id: TensorId, shape: readonly number[], dtype: number): tf.Tensor {
  return backend().createOutputTensor({ id, shape: [...shape], dtype } as OutputInfo);
}

/** Copies of the uploaded inputs and reads of the variables as tensors of TensorFlow.js. Call within tf.tidy. */
function operands(
  description: StepDescription,
  inputs: Readonly<Record<string, HostTensor>>,
  ids: readonly TensorId[],
  variables: Readonly<Record<string, Variable>>,
): { given: Tensors; read: Tensors } {
  const b = binding();
  const given = Object.fromEntries(
    Object.entries(inputs).map(([name, { shape, data }], i) => {
      const dtype = data instanceof Int32Array ? b.TF_INT32 : b.TF_FLOAT;
      // Identity shares the buffer; the tensor of TensorFlow.js owns this id and frees it with its scope.
      const id = b.executeOp('Identity', [{ name: 'T', type: b.TF_ATTR_TYPE, value: dtype }], [ids[i] as TensorId], 1)[0]!.id;
      return [name, wrap(id, shape, dtype)];
    }),
  );
  const read = Object.fromEntries(
    Object.entries(variables)
      .filter(([name]) => description.writeOnly?.has(name) !== true)
      .map(([name, variable]) => [name, wrap(variable.readId(), variable.shape, b.TF_FLOAT)]),
  );
  return { given, read };
}

function runEager(
  description: StepDescription,
  inputs: Readonly<Record<string, HostTensor>>,
  ids: readonly TensorId[],
  variables: Readonly<Record<string, Variable>>,
): TensorId[] {
  const kept: TensorId[] = [];
  tf.tidy(() => {
    const { given, read } = operands(description, inputs, ids, variables);
    const result = description.build(given, read);
    const b = binding();
    for (const output of result.outputs) {
      const dtype = output.dtype === 'int32' ? b.TF_INT32 : b.TF_FLOAT;
      kept.push(b.executeOp('Identity', [{ name: 'T', type: b.TF_ATTR_TYPE, value: dtype }], [idOf(output)], 1)[0]!.id);
    }
    for (const [name, value] of Object.entries(result.assign ?? {})) variableOf(variables, name).assignId(idOf(value));
    for (const [name, value] of Object.entries(result.add ?? {})) variableOf(variables, name).addId(idOf(value));
  });
  return kept;
}

function record(
  description: StepDescription,
  inputs: Readonly<Record<string, HostTensor>>,
  ids: readonly TensorId[],
  variables: Readonly<Record<string, Variable>>,
): Recorded {
  const b = binding();
  const recorder = new Recorder();
  const name = `terminal_rsi_${serial++}`;
  const argument = new Map<string, string>();
  const inputArguments = [
    ...Object.entries(inputs).map(([key, { data }], i) => {
      argument.set(key, `a${i}`);
      return { name: `a${i}`, type: data instanceof Int32Array ? b.TF_INT32 : b.TF_FLOAT };
    }),
    ...Object.keys(variables).map((key, i) => {
      argument.set(key, `v${i}`);
      return { name: `v${i}`, type: b.TF_RESOURCE };
    }),
  ];
  const dtype = { type: b.TF_FLOAT };
  const ret: Record<string, string> = {};
  const outputArguments: { name: string; type: number }[] = [];
  const control: Record<string, string> = {};
  tf.tidy(() => {
    const { given, read } = operands(description, inputs, ids, variables);
    for (const [key, tensor] of Object.entries(given)) recorder.know(idOf(tensor), argument.get(key) as string);
    for (const [key, tensor] of Object.entries(read)) {
      const node = recorder.node('ReadVariableOp', [argument.get(key) as string], { dtype });
      recorder.know(idOf(tensor), outputReference(node, 'ReadVariableOp', 0));
    }
    recorder.during(() => {
      const result = description.build(given, read);
      result.outputs.forEach((output, i) => {
        ret[`r${i}`] = recorder.reference(idOf(output), `output ${i}`);
        outputArguments.push({ name: `r${i}`, type: output.dtype === 'int32' ? b.TF_INT32 : b.TF_FLOAT });
      });
      const write = (op: string, values: Readonly<Record<string, tf.Tensor>> = {}): void => {
        for (const [key, value] of Object.entries(values)) {
          variableOf(variables, key);
          const node = recorder.node(op, [argument.get(key) as string, recorder.reference(idOf(value), `new value of ${key}`)], { dtype });
          control[node] = node;
        }
      };
      write('AssignVariableOp', result.assign);
      write('AssignAddVariableOp', result.add);
    });
  });
  const definition = {
    signature: {
      name,
      input_arg: inputArguments,
      output_arg: outputArguments,
      is_stateful: true,
      control_output: Object.keys(control),
    },
    node_def: recorder.nodes,
    ret,
    attr: description.xla === true ? { _XlaMustCompile: { b: true } } : {},
    control_ret: control,
  };
  b.addFunction!(encodeFunction(definition));
  return { name, outputs: outputArguments.length };
}

function variableOf(variables: Readonly<Record<string, Variable>>, name: string): Variable {
  const found = variables[name];
  if (found === undefined) throw new Error(`variable ${name}: a description writes it, but it was not handed over`);
  return found;
}
