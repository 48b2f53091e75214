/**
 * The part of TensorFlow's protocol buffers that a function of ours needs (tensorflow/core/framework/{function,node_def,op_def,
 * attr_value,tensor,tensor_shape}.proto): field names and numbers are TensorFlow's.
 */
import protobuf from 'protobufjs';

const schema = `
syntax = "proto3";
message Dim { int64 size = 1; }
message TensorShape { repeated Dim dim = 2; }
message Tensor { int32 dtype = 1; TensorShape tensor_shape = 2; bytes tensor_content = 4; }
message FunctionName { string name = 1; }
message AttrList { repeated int64 i = 3; repeated int32 type = 6; }
message Attr {
  oneof value {
    AttrList list = 1; bytes s = 2; int64 i = 3; float f = 4; bool b = 5; int32 type = 6; TensorShape shape = 7; Tensor tensor = 8;
    FunctionName func = 10;
  }
}
message Node { string name = 1; string op = 2; repeated string input = 3; string device = 4; map<string, Attr> attr = 5; }
message Argument { string name = 1; int32 type = 3; }
message Signature {
  string name = 1; repeated Argument input_arg = 2; repeated Argument output_arg = 3; bool is_stateful = 17; repeated string control_output = 20;
}
message Function {
  Signature signature = 1; repeated Node node_def = 3; map<string, string> ret = 4; map<string, Attr> attr = 5; map<string, string> control_ret = 6;
}
`;

/** One attribute; exactly one field is set. */
export interface Attr {
  readonly list?: { readonly i?: readonly number[]; readonly type?: readonly number[] };
  readonly s?: Uint8Array;
  readonly i?: number;
  readonly f?: number;
  readonly b?: boolean;
  readonly type?: number;
  readonly shape?: Shape;
  readonly func?: { readonly name: string };
  readonly tensor?: { readonly dtype: number; readonly tensor_shape: Shape; readonly tensor_content: Uint8Array };
}
interface Shape {
  readonly dim: readonly { readonly size: number }[];
}
export interface Node {
  readonly name: string;
  readonly op: string;
  readonly input: readonly string[];
  /** Where the operation must run; without it TensorFlow chooses. */
  readonly device?: string;
  readonly attr: Readonly<Record<string, Attr>>;
}
export interface Argument {
  readonly name: string;
  readonly type: number;
}
export interface FunctionDef {
  readonly signature: {
    readonly name: string;
    readonly input_arg: readonly Argument[];
    readonly output_arg: readonly Argument[];
    readonly is_stateful: boolean;
    readonly control_output: readonly string[];
  };
  readonly node_def: readonly Node[];
  /** Output argument → node output. */
  readonly ret: Readonly<Record<string, string>>;
  readonly attr: Readonly<Record<string, Attr>>;
  /** Control output → node that must run although nobody reads it. */
  readonly control_ret: Readonly<Record<string, string>>;
}

const type = protobuf.parse(schema, { keepCase: true }).root.lookupType('Function');

export function shapeAttr(shape: readonly number[]): Shape {
  return { dim: shape.map((size) => ({ size })) };
}

export function encodeFunction(definition: FunctionDef): Uint8Array {
  return type.encode(type.create(definition)).finish();
}
