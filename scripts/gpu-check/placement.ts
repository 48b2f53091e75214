/** On which device each kind of operation ran: TensorFlow keeps the graphs that functions become, once placed and optimised. No TensorFlow here. */
import protobuf from 'protobufjs';

/** The part of tensorflow/core/protobuf/config.proto that says it; field names and numbers are TensorFlow's. */
const schema = `
syntax = "proto3";
message Node { string op = 2; string device = 4; }
message Graph { repeated Node node = 1; }
message FunctionGraphs { repeated Graph partition_graphs = 1; }
message RunMetadata { repeated Graph partition_graphs = 3; repeated FunctionGraphs function_graphs = 4; }
`;
const type = protobuf.parse(schema, { keepCase: true }).root.lookupType('RunMetadata');

interface Graph {
  readonly node?: readonly { readonly op: string; readonly device: string }[];
}
interface RunMetadata {
  readonly partition_graphs?: readonly Graph[];
  readonly function_graphs?: readonly { readonly partition_graphs?: readonly Graph[] }[];
}

/** How many nodes of each operation lie on each device ("CPU:0", "GPU:0"). */
export type Placement = Readonly<Record<string, Readonly<Record<string, number>>>>;

/** Operations that do the work, or hold what it is done with: of these none may run elsewhere. Counting and shapes stay on the CPU. */
const WORK = [
  'MatMul',
  'BatchMatMulV2',
  '_MklMatMul',
  '_MklBatchMatMulV2',
  'SparseSoftmaxCrossEntropyWithLogits',
  'StatefulPartitionedCall',
  'VarHandleOp',
  'ReadVariableOp',
  'AssignVariableOp',
  'AssignAddVariableOp',
  'ResourceScatterUpdate',
];

/** Those of them that ran on the CPU although the device is a GPU. */
export function misplaced(placement: Placement): string[] {
  return WORK.filter((operation) => (placement[operation]?.['CPU:0'] ?? 0) > 0);
}

/** @param bytes a serialized RunMetadata */
export function readPlacement(bytes: Uint8Array): Placement {
  const metadata = type.decode(bytes) as unknown as RunMetadata;
  const graphs = [
    ...(metadata.partition_graphs ?? []),
    ...(metadata.function_graphs ?? []).flatMap(({ partition_graphs = [] }) => partition_graphs),
  ];
  const operations: Record<string, Record<string, number>> = {};
  for (const { op, device } of graphs.flatMap(({ node = [] }) => node)) {
    const where = /[A-Z_]+:\d+$/.exec(device)?.[0] ?? 'unplaced';
    const counts = (operations[op] ??= {});
    counts[where] = (counts[where] ?? 0) + 1;
  }
  return operations;
}
