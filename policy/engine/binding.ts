/**
 * The native addon by raw tensor id. tfjs-node keeps it as a public field of its backend that its type declarations do not fully mention;
 * the optional methods are ours (native/function-addon.cc) and absent from an addon that setup did not compile.
 */
import { nativeBackend } from '../tensorflow.ts';
import type { tf } from '../tensorflow.ts';

export type TensorId = number;
export type HostArray = Float32Array | Int32Array;

export interface OpAttribute {
  readonly name: string;
  readonly type: number;
  readonly value: unknown;
}
export interface OutputInfo {
  readonly id: TensorId;
  readonly shape: number[];
  readonly dtype: number;
}
export interface Binding {
  readonly TF_FLOAT: number;
  readonly TF_INT32: number;
  readonly TF_BOOL: number;
  readonly TF_RESOURCE: number;
  readonly TF_ATTR_BOOL: number;
  readonly TF_ATTR_FLOAT: number;
  readonly TF_ATTR_INT: number;
  readonly TF_ATTR_SHAPE: number;
  readonly TF_ATTR_STRING: number;
  readonly TF_ATTR_TYPE: number;
  createTensor(shape: readonly number[], dtype: number, data: HostArray | Uint8Array): TensorId;
  deleteTensor(id: TensorId): void;
  tensorDataSync(id: TensorId): HostArray;
  executeOp(name: string, attributes: readonly OpAttribute[], inputs: readonly TensorId[], outputs: number): OutputInfo[];
  getNumOfTensors(): number;
  addFunction?(bytes: Uint8Array): void;
  removeFunction?(name: string): void;
  collectGraphs?(on: boolean): void;
  takeGraphs?(): Uint8Array;
}

/** What of tfjs-node's backend is needed beyond its declared type. */
interface Backend {
  binding: Binding;
  createOutputTensor(info: OutputInfo): tf.Tensor;
  getInputTensorIds(tensors: readonly tf.Tensor[]): TensorId[];
}
export function backend(): Backend {
  return nativeBackend() as unknown as Backend;
}
export function binding(): Binding {
  return backend().binding;
}

/** The id of a tensor's native value; uploads it first where TensorFlow.js has kept it in JavaScript. */
export function idOf(tensor: tf.Tensor): TensorId {
  return backend().getInputTensorIds([tensor])[0] as TensorId;
}
