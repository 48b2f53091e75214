import assert from 'node:assert/strict';
import { test } from 'node:test';
import protobuf from 'protobufjs';
import { compareDevices, repeats } from './compare.ts';
import type { Computed, Trained } from './compare.ts';
import { misplaced, readPlacement } from './placement.ts';

const trained = (change = 0): Trained => ({ losses: [2, 1 + change], gradientNorms: [1, 0.5], moved: [0.01, -0.02] });
function computed(change: Partial<Computed> = {}): Computed {
  return {
    device: { kind: 'CPU', name: 'one', tensorflow: '2', threads: 2 },
    ...{ fallbacks: [], placement: {} },
    ...{ training: { sft: trained(), value: trained(), ppo: trained() }, again: trained() },
    ...{ decoded: [-1, -2], evaluated: [-1, -2] },
    ...change,
  };
}
const failed = (change: Partial<Computed>): string[] =>
  compareDevices(computed(change), computed()).flatMap(({ name, passed }) => (passed ? [] : [name]));

test('what agrees passes, and rounding is agreement', () => {
  assert.deepEqual(failed({}), []);
  assert.deepEqual(failed({ training: { sft: trained(1e-6), value: trained(), ppo: trained() } }), []);
});

test('each number that differs fails under its own name', () => {
  const training = computed().training;
  assert.deepEqual(failed({ training: { ...training, ppo: trained(1e-3) } }), ['ppo: loss of 10 steps, relative']);
  assert.deepEqual(failed({ training: { ...training, sft: { ...trained(), gradientNorms: [1, 0.51] } } }), [
    'sft: gradient norm of 10 steps, relative',
  ]);
  assert.deepEqual(failed({ training: { ...training, value: { ...trained(), moved: [0.01, -0.021] } } }), [
    'value: weights after 10 steps, of their way',
  ]);
  assert.deepEqual(failed({ evaluated: [-1, -2.01] }), ['sampling against training on the device']);
});

test('numbers that are not finite, or are missing, do not agree', () => {
  assert.equal(failed({ decoded: [-1, NaN] }).length, 2);
  assert.equal(failed({ decoded: [-1] }).length, 2);
  assert.equal(failed({ decoded: [], evaluated: [] }).length, 2);
});

test('the same bits twice are told from others', () => {
  assert.equal(repeats(computed()), true);
  assert.equal(repeats(computed({ again: trained(1e-15) })), false);
});

test('operations are counted by device, and work that a GPU left to the CPU is named', () => {
  const schema = `
    syntax = "proto3";
    message Node { string name = 1; string op = 2; string device = 4; }
    message Graph { repeated Node node = 1; }
    message Functions { repeated Graph partition_graphs = 1; }
    message RunMetadata { repeated Graph partition_graphs = 3; repeated Functions function_graphs = 4; }`;
  const type = protobuf.parse(schema, { keepCase: true }).root.lookupType('RunMetadata');
  const node = (op: string, where: string): object => ({ name: 'n', op, device: `/job:localhost/replica:0/task:0/device:${where}` });
  const graph = { node: [node('MatMul', 'GPU:0'), node('MatMul', 'GPU:0'), node('AssignAddVariableOp', 'CPU:0'), node('Shape', 'CPU:0')] };
  const placement = readPlacement(type.encode(type.create({ function_graphs: [{ partition_graphs: [graph] }] })).finish());
  assert.deepEqual(placement, { MatMul: { 'GPU:0': 2 }, AssignAddVariableOp: { 'CPU:0': 1 }, Shape: { 'CPU:0': 1 } });
  assert.deepEqual(misplaced(placement), ['AssignAddVariableOp']);
});
