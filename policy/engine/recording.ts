/**
 * From a description to registered TensorFlow functions: `recordFunction` makes the function of one computation, the same for all models of one
 * shape; `bindFunction` makes the small function around it that one model calls, in which the variables are named. Naming them there instead
 * of passing handles saves 4 µs a variable and call (measured on 2 cores with 70 variables: 296 µs a call against 37 µs without any), and lets several lanes run side by side.
 */
import { device } from '../tensorflow.ts';
import type { tf } from '../tensorflow.ts';
import { binding, idOf } from './binding.ts';
import { encodeFunction, shapeAttr } from './function-proto.ts';
import type { Attr, Node } from './function-proto.ts';
import { outputReference } from './op-outputs.ts';
import { Recorder } from './recorder.ts';
import type { StepDescription, Tensors } from './step-function.ts';
import type { Variable } from './variable.ts';

/** What a function takes: host or native values first, then variables. */
export interface Signature {
  /** Name and native type of each value. */
  readonly values: readonly { readonly name: string; readonly type: number }[];
  readonly variables: readonly string[];
}
export interface RecordedFunction {
  readonly name: string;
  readonly outputTypes: readonly number[];
}

let serial = 0;

/** Runs `build` once on real tensors and registers what it did. `given` and `read` are the operands by name; call within tf.tidy. */
export function recordFunction(description: StepDescription, signature: Signature, given: Tensors, read: Tensors): RecordedFunction {
  const b = binding();
  const recorder = new Recorder();
  const name = `terminal_rsi_${serial++}_${description.key.replace(/\W/g, '_').slice(0, 40)}`;
  const resource = new Map(signature.variables.map((variable, i) => [variable, `v${i}`]));
  const argument = (variable: string): string => {
    const found = resource.get(variable);
    if (found === undefined) throw new Error(`variable ${variable}: the description writes it, but it was not handed over`);
    return found;
  };
  const dtype = { type: b.TF_FLOAT };
  signature.values.forEach(({ name: value }, i) => recorder.know(idOf(given[value] as tf.Tensor), `a${i}`));
  const readBy = new Map<string, string>();
  for (const [variable, tensor] of Object.entries(read)) {
    const node = recorder.node('ReadVariableOp', [argument(variable)], { dtype });
    readBy.set(variable, node);
    recorder.know(idOf(tensor), outputReference(node, 'ReadVariableOp', 0));
  }
  const ret: Record<string, string> = {};
  const outputTypes: number[] = [];
  const control: Record<string, string> = {};
  recorder.during(() => {
    const result = description.build(given, read);
    result.outputs.forEach((output, i) => {
      ret[`r${i}`] = recorder.reference(idOf(output), `output ${i}`);
      outputTypes.push(output.dtype === 'int32' ? b.TF_INT32 : b.TF_FLOAT);
    });
    const effect = (op: string, variable: string, tensors: readonly tf.Tensor[], attr: Readonly<Record<string, Attr>>): void => {
      const inputs = tensors.map((tensor) => recorder.reference(idOf(tensor), `new value of ${variable}`));
      // A new value that does not come from the old one, such as zeros, must still not be written before the old one is read.
      const after = readBy.has(variable) ? [`^${readBy.get(variable)}`] : [];
      const node = recorder.node(op, [argument(variable), ...inputs, ...after], attr);
      control[node] = node;
    };
    for (const [variable, value] of Object.entries(result.assign ?? {})) effect('AssignVariableOp', variable, [value], { dtype });
    for (const [variable, value] of Object.entries(result.add ?? {})) effect('AssignAddVariableOp', variable, [value], { dtype });
    for (const [variable, { indices, updates }] of Object.entries(result.scatter ?? {})) {
      effect('ResourceScatterUpdate', variable, [indices, updates], { dtype, Tindices: { type: b.TF_INT32 } });
    }
  });
  register(
    name,
    [
      ...signature.values.map(({ type }, i) => ({ name: `a${i}`, type })),
      ...signature.variables.map((_, i) => ({ name: `v${i}`, type: b.TF_RESOURCE })),
    ],
    recorder.nodes,
    outputTypes,
    ret,
    control,
    description.xla === true,
  );
  return { name, outputTypes };
}

/** A function of all lanes' values, in order, that calls `inner` once per lane with the lane's variables. The caller removes it. */
export function bindFunction(
  inner: RecordedFunction,
  signature: Signature,
  lanes: readonly Readonly<Record<string, Variable>>[],
  xla: boolean,
): string {
  const b = binding();
  const name = `${inner.name}_${serial++}`;
  const nodes: Node[] = [];
  const ret: Record<string, string> = {};
  const control: Record<string, string> = {};
  const types: number[] = [];
  // Where the variables are. TensorFlow would choose the GPU too, by priority; a handle on the wrong device would be another variable.
  const place = device().kind === 'GPU' ? { device: '/device:GPU:0' } : {};
  lanes.forEach((variables, lane) => {
    const inputs = signature.values.map((_, i) => `a${lane * signature.values.length + i}`);
    for (const [i, key] of signature.variables.entries()) {
      const variable = variables[key] as Variable;
      const node = `lane${lane}_v${i}`;
      nodes.push({
        name: node,
        op: 'VarHandleOp',
        input: [],
        ...place,
        attr: {
          dtype: { type: b.TF_FLOAT },
          shape: { shape: shapeAttr(variable.shape) },
          shared_name: { s: Buffer.from(variable.name) },
          container: { s: Buffer.alloc(0) },
        },
      });
      inputs.push(outputReference(node, 'VarHandleOp', 0));
    }
    const call = `lane${lane}`;
    nodes.push({
      name: call,
      op: 'StatefulPartitionedCall',
      input: inputs,
      ...place,
      attr: {
        Tin: { list: { type: [...signature.values.map(({ type }) => type), ...signature.variables.map(() => b.TF_RESOURCE)] } },
        Tout: { list: { type: inner.outputTypes } },
        f: { func: { name: inner.name } },
        config: { s: Buffer.alloc(0) },
        config_proto: { s: Buffer.alloc(0) },
        executor_type: { s: Buffer.alloc(0) },
        ...(xla && { _XlaMustCompile: { b: true } }),
      },
    });
    control[call] = call;
    inner.outputTypes.forEach((type, i) => {
      ret[`r${types.length}`] = outputReference(call, 'StatefulPartitionedCall', i);
      types.push(type);
    });
  });
  const values = lanes.flatMap(() => signature.values).map(({ type }, i) => ({ name: `a${i}`, type }));
  register(name, values, nodes, types, ret, control, false);
  return name;
}

function register(
  name: string,
  input_arg: readonly { name: string; type: number }[],
  node_def: readonly Node[],
  outputTypes: readonly number[],
  ret: Readonly<Record<string, string>>,
  control_ret: Readonly<Record<string, string>>,
  xla: boolean,
): void {
  const bytes = encodeFunction({
    signature: {
      name,
      input_arg,
      output_arg: outputTypes.map((type, i) => ({ name: `r${i}`, type })),
      is_stateful: true,
      control_output: Object.keys(control_ret),
    },
    node_def,
    ret,
    attr: xla ? { _XlaMustCompile: { b: true } } : {},
    control_ret,
  });
  binding().addFunction!(bytes);
}
