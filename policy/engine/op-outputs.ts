/**
 * Names of operations' outputs. Inside a function a value is called `node:output name:index`, and the eager interface does not tell the
 * names; these are facts of TensorFlow's operation registry. An operation that is not here cannot be recorded.
 */
const single: Readonly<Record<string, string>> = {
  activations: 'Relu Relu6 Elu Selu',
  band: 'MatrixBandPart',
  logsoftmax: 'LogSoftmax',
  out: 'Cumsum',
  output:
    'Const Identity Range BatchMatMul BatchMatMulV2 ConcatV2 Reshape Mean Sum Max Min Prod GatherV2 ArgMax ArgMin Pack StridedSlice Slice Select ' +
    'SelectV2 Fill Tile OneHot ExpandDims Squeeze Einsum BroadcastTo UnsortedSegmentSum TensorScatterUpdate StopGradient Any All Pad PadV2',
  product: 'MatMul',
  resource: 'VarHandleOp',
  softmax: 'Softmax',
  sum: 'AddN',
  value: 'ReadVariableOp',
  y:
    'Neg Square Sqrt Rsqrt Sigmoid Cast Cos Sin Exp Expm1 Log Log1p Transpose ZerosLike OnesLike LogicalNot Tanh Abs Sign Reciprocal IsFinite ' +
    'IsNan InplaceUpdate Softplus',
  z:
    'Mul Add AddV2 Sub RealDiv Div Pow Greater GreaterEqual Less LessEqual Equal NotEqual LogicalAnd LogicalOr Maximum Minimum FloorMod FloorDiv ' +
    'SquaredDifference MulNoNan',
};
/** Operations with several outputs: a list under one name, or a name each. */
const several: Readonly<Record<string, string | readonly string[]>> = {
  PartitionedCall: 'output',
  StatefulPartitionedCall: 'output',
  Split: 'output',
  SplitV: 'output',
  Unpack: 'output',
  SparseSoftmaxCrossEntropyWithLogits: ['loss', 'backprop'],
  TopKV2: ['values', 'indices'],
};
const names = new Map<string, string | readonly string[]>(Object.entries(several));
for (const [output, ops] of Object.entries(single)) for (const op of ops.split(' ')) names.set(op, output);

/** The reference to output `index` of the node `node`. Throws for an operation that the table lacks. */
export function outputReference(node: string, op: string, index: number): string {
  const found = names.get(op);
  if (found === undefined) throw new Error(`operation ${op}: the names of its outputs are not in policy/engine/op-outputs.ts`);
  return typeof found === 'string' ? `${node}:${found}:${index}` : `${node}:${found[index] as string}:0`;
}
