/**
 * Small models of every family and RoPE variant against Hugging Face transformers: tests/fixtures/transformers-logits.py computed the
 * logits there (torch is too large to install for a test), from weights that follow from a formula.
 */
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, it } from 'node:test';
import fixture from '../tests/fixtures/transformers-logits.json' with { type: 'json' };
import { loadModel, saveModel } from './checkpoint.ts';
import { sequenceLogits } from './evaluation.ts';
import { disposeModel } from './model-parameters.ts';
import { writeSafetensors } from './safetensors.ts';

const root = mkdtempSync(join(tmpdir(), 'transformers-'));
after(() => rmSync(root, { recursive: true }));
let count = 0;
const fresh = (): string => join(root, String(count++));

/** The formula of the fixture. */
function fill(name: string, shape: readonly number[]): Float32Array {
  const start = [...name].reduce((sum, character) => sum + character.charCodeAt(0), 0);
  const gain = name.endsWith('norm.weight') ? 1 : 0;
  const hash = (i: number): number => Math.imul(i + 1000 * start + 1, 2654435761) >>> 0;
  return Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, (_, i) => hash(i) / 2 ** 32 - 0.5 + gain);
}

type Entry = (typeof fixture.models)[keyof typeof fixture.models];
function checkpoint({ config, shapes }: { config: object; shapes: Entry['shapes'] }): string {
  const directory = fresh();
  const tensors = Object.entries(shapes).map(([name, shape]) => [name, { shape, data: fill(name, shape) }] as const);
  // `saveModel` writes directories; here the bytes must not come from it.
  mkdirSync(directory);
  writeSafetensors(join(directory, 'model.safetensors'), new Map(tensors));
  writeFileSync(join(directory, 'config.json'), JSON.stringify(config));
  return directory;
}
/** Largest difference of any logit after the fixture's positions. */
function difference(directory: string, expected: readonly number[]): number {
  const model = loadModel(directory, 'actor');
  const all = sequenceLogits(model, fixture.tokens);
  disposeModel(model);
  const vocabulary = all.length / fixture.tokens.length;
  const ours = fixture.positions.flatMap((t) => [...all.subarray(t * vocabulary, (t + 1) * vocabulary)]);
  assert.equal(ours.length, expected.length);
  return Math.max(...ours.map((value, i) => Math.abs(value - (expected[i] as number))));
}
const TOLERANCE = 2e-5;

describe(`logits beside transformers ${fixture.versions.transformers} (torch ${fixture.versions.torch})`, () => {
  let largest = 0;
  for (const [name, entry] of Object.entries(fixture.models)) {
    it(name, () => {
      const found = difference(checkpoint(entry), entry.logits);
      largest = Math.max(largest, found);
      assert.ok(found < TOLERANCE, `differs by ${found}`);
    });
  }
  it('all of them, reported', (t) => {
    const range = Math.max(...Object.values(fixture.models).flatMap((entry) => entry.logits.map(Math.abs)));
    t.diagnostic(`logits up to ${range.toFixed(1)} differ by at most ${largest.toExponential(1)}`);
  });
  it('from config.json as transformers 4 writes it: rope_theta and rope_scaling', () => {
    const entry = fixture.models['qwen3, yarn'];
    const { rope_parameters, ...config } = entry.config;
    const { rope_theta, rope_type, ...scaling } = rope_parameters;
    const older = { ...config, torch_dtype: 'float32', rope_theta, rope_scaling: { type: rope_type, ...scaling } };
    assert.ok(difference(checkpoint({ config: older, shapes: entry.shapes }), entry.logits) < TOLERANCE);
  });
  it('after an export in float32, and nearly so in bfloat16', () => {
    const entry = fixture.models['llama, llama3'];
    const model = loadModel(checkpoint(entry), 'actor');
    const [exact, rounded] = [fresh(), fresh()];
    saveModel(model, exact);
    saveModel(model, rounded, { type: 'bfloat16' });
    disposeModel(model);
    assert.ok(difference(exact, entry.logits) < TOLERANCE);
    const off = difference(rounded, entry.logits);
    assert.ok(off > TOLERANCE && off < 0.5, `differs by ${off}`);
  });
});
