/**
 * The forward pass against a plain re-computation from the saved checkpoint with loops over numbers, written after the formulas of
 * Hugging Face's Qwen3 (weights [out,in], rotate_half, repeat_kv), so that layout, rotation and head grouping are checked too.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, it } from 'node:test';
import { Random } from '../method/seeds.ts';
import { tinyConfig as config } from '../tests/fixtures/tiny-config.ts';
import { saveModel } from './checkpoint.ts';
import { binding } from './engine/binding.ts';
import { tokenEntropy, tokenLogprobs, tokenValues } from './evaluation.ts';
import { createModel, disposeModel, type Model } from './model-parameters.ts';
import { readSafetensors, type TensorEntry } from './safetensors.ts';
import { device } from './tensorflow.ts';
import type { ModelRole, SequenceBatch } from './types.ts';

type Vector = number[];

/** [T] of [D]: hidden states after the last norm for one sequence. */
function referenceHidden(tensors: Map<string, TensorEntry>, tokens: readonly number[]): Vector[] {
  const { num_attention_heads: H, num_key_value_heads: K, head_dim: Dh, rope_theta: theta, rms_norm_eps: epsilon, hidden_size: D } = config;
  const weight = (name: string): TensorEntry => tensors.get(`model.${name}.weight`) as TensorEntry;
  const linear = (name: string, x: Vector): Vector => {
    const { shape, data } = weight(name);
    const [out, inner] = shape as [number, number];
    return Array.from({ length: out }, (_, o) => x.reduce((sum, v, i) => sum + v * (data[o * inner + i] as number), 0));
  };
  const norm = (name: string, x: Vector): Vector => {
    const scale = 1 / Math.sqrt(x.reduce((sum, v) => sum + v * v, 0) / x.length + epsilon);
    return x.map((v, i) => v * scale * (weight(name).data[i] as number));
  };
  const rotate = (x: Vector, t: number): Vector =>
    x.map((v, i) => {
      const angle = t * theta ** ((-2 * (i % (Dh / 2))) / Dh);
      const half = i < Dh / 2 ? -(x[i + Dh / 2] as number) : (x[i - Dh / 2] as number);
      return v * Math.cos(angle) + half * Math.sin(angle);
    });
  const heads = (x: Vector): Vector[] => Array.from({ length: x.length / Dh }, (_, h) => x.slice(h * Dh, (h + 1) * Dh));
  const add = (a: Vector, b: Vector): Vector => a.map((v, i) => v + (b[i] as number));

  let x = tokens.map((token) => Array.from(weight('embed_tokens').data.slice(token * D, (token + 1) * D)));
  for (let layer = 0; layer < config.num_hidden_layers; layer++) {
    const at = (name: string): string => `layers.${layer}.${name}`;
    const normed = x.map((v) => norm(at('input_layernorm'), v));
    const q = normed.map((v, t) => heads(linear(at('self_attn.q_proj'), v)).map((h) => rotate(norm(at('self_attn.q_norm'), h), t)));
    const k = normed.map((v, t) => heads(linear(at('self_attn.k_proj'), v)).map((h) => rotate(norm(at('self_attn.k_norm'), h), t)));
    const v = normed.map((row) => heads(linear(at('self_attn.v_proj'), row)));
    x = x.map((residual, t) => {
      const mixed = Array.from({ length: H }, (_, h) => {
        const group = Math.floor(h / (H / K));
        const scores = k.slice(0, t + 1).map((key) => {
          const query = q[t]?.[h] as Vector;
          return Math.exp(query.reduce((sum, a, i) => sum + a * (key[group]?.[i] as number), 0) / Math.sqrt(Dh));
        });
        const total = scores.reduce((a, b) => a + b, 0);
        return Array.from({ length: Dh }, (_, i) => scores.reduce((sum, s, j) => sum + (s / total) * (v[j]?.[group]?.[i] as number), 0));
      }).flat();
      return add(residual, linear(at('self_attn.o_proj'), mixed));
    });
    x = x.map((residual) => {
      const h = norm(at('post_attention_layernorm'), residual);
      const up = linear(at('mlp.up_proj'), h);
      const gated = linear(at('mlp.gate_proj'), h).map((g, i) => (g / (1 + Math.exp(-g))) * (up[i] as number));
      return add(residual, linear(at('mlp.down_proj'), gated));
    });
  }
  return x.map((v) => norm('norm', v));
}

function livelyModel(role: ModelRole): Model {
  const model = createModel(config, role, 7);
  const random = new Random(23);
  for (const parameter of model.params.values()) {
    const values = parameter.read().map((v) => v + (random.next() - 0.5) * 0.9);
    parameter.assign(values);
  }
  return model;
}

const sequences = [
  [1, 4, 9, 4, 10, 2],
  [1, 7, 3, 2],
];
const batch: SequenceBatch = {
  rows: 2,
  length: 6,
  tokens: [...(sequences[0] as number[]), ...(sequences[1] as number[]), 0, 0],
  mask: [0, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 0],
};

describe('forward pass', () => {
  const [actor, critic] = [livelyModel('actor'), livelyModel('critic')];
  const directory = mkdtempSync(join(tmpdir(), 'model-'));
  saveModel(actor, join(directory, 'actor'));
  saveModel(critic, join(directory, 'critic'));
  const [actorTensors, criticTensors] = ['actor', 'critic'].map((d) => readSafetensors(join(directory, d, 'model.safetensors'))) as [
    Map<string, TensorEntry>,
    Map<string, TensorEntry>,
  ];
  after(() => {
    disposeModel(actor);
    disposeModel(critic);
    rmSync(directory, { recursive: true });
  });

  function expectEverywhere(actual: Float32Array, expected: (row: number, column: number) => number): void {
    batch.mask.forEach((masked, i) => {
      const value = masked === 1 ? expected(Math.floor(i / 6), i % 6) : 0;
      assert.ok(
        Math.abs((actual[i] as number) - value) < 2e-5,
        `row ${Math.floor(i / 6)}, column ${i % 6}: ${actual[i]}, expected ${value}`,
      );
    });
  }
  /** Log-probabilities of all tokens after the prefix of length `column`. */
  const hidden = sequences.map((s) => referenceHidden(actorTensors, s));
  function distribution(row: number, column: number): number[] {
    const h = hidden[row]?.[column - 1] as Vector;
    const embed = (actorTensors.get('model.embed_tokens.weight') as TensorEntry).data;
    const logits = Array.from({ length: 11 }, (_, v) => h.reduce((sum, x, i) => sum + x * (embed[v * 8 + i] as number), 0));
    const total = Math.log(logits.reduce((sum, l) => sum + Math.exp(l), 0));
    return logits.map((l) => l - total);
  }

  it('gives the log-probability of each masked token after its prefix', () => {
    expectEverywhere(tokenLogprobs(actor, batch), (row, column) => distribution(row, column)[sequences[row]?.[column] as number] as number);
  });
  it('gives the entropy of the distribution that the token comes from', () => {
    expectEverywhere(tokenEntropy(actor, batch), (row, column) => -distribution(row, column).reduce((sum, l) => sum + Math.exp(l) * l, 0));
  });
  it('gives the value at the position before the token', () => {
    const head = (criticTensors.get('value_head.weight') as TensorEntry).data;
    const states = sequences.map((s) => referenceHidden(criticTensors, s));
    expectEverywhere(tokenValues(critic, batch), (row, column) =>
      (states[row]?.[column - 1] as Vector).reduce((sum, x, i) => sum + x * (head[i] as number), 0),
    );
  });
  it('does not look ahead', () => {
    const changed = { ...batch, tokens: batch.tokens.map((t, i) => (i === 5 ? 8 : t)) };
    const [before, afterwards] = [tokenLogprobs(actor, batch), tokenLogprobs(actor, changed)];
    assert.deepEqual(afterwards.slice(0, 5), before.slice(0, 5));
    assert.notEqual(afterwards[5], before[5]);
  });
  it('does not depend on padding or on the other rows', () => {
    const alone = tokenLogprobs(actor, { rows: 1, length: 4, tokens: batch.tokens.slice(6, 10), mask: batch.mask.slice(6, 10) });
    tokenLogprobs(actor, batch)
      .slice(6, 10)
      .forEach((value, i) => assert.ok(Math.abs(value - (alone[i] as number)) < 1e-6));
  });
  it('repeats bit by bit and leaves no tensor behind', () => {
    const first = tokenLogprobs(actor, batch);
    const tensors = binding().getNumOfTensors();
    assert.deepEqual(tokenLogprobs(actor, batch), first);
    tokenEntropy(actor, batch);
    tokenValues(critic, batch);
    assert.equal(binding().getNumOfTensors(), tensors);
  });
  it('gives zeros without masked tokens', () => {
    assert.deepEqual(tokenLogprobs(actor, { ...batch, mask: batch.mask.map(() => 0) }), new Float32Array(12));
  });
  it('names what is wrong with a batch', () => {
    const wrong = (changes: Partial<SequenceBatch>, message: RegExp): void =>
      assert.throws(() => tokenLogprobs(actor, { ...batch, ...changes }), message);
    wrong({ tokens: batch.tokens.with(7, 11) }, /token 11 at row 1, column 1: expected 0 to 10/);
    wrong({ tokens: batch.tokens.with(7, -1) }, /token -1/);
    wrong({ mask: batch.mask.with(6, 1) }, /row 1, column 0: nothing precedes/);
    wrong({ mask: batch.mask.with(1, 0.5) }, /mask 0.5 at row 0, column 1/);
    wrong({ rows: 3 }, /12 tokens and 12 mask values, expected 18/);
    wrong(
      { rows: 1, length: 17, tokens: new Array<number>(17).fill(1), mask: new Array<number>(17).fill(0) },
      /length 17: the model has 16/,
    );
  });
});

describe('createModel', () => {
  it('gives the same weights for the same seed, and others for another', () => {
    const values = (seed: number): string => {
      const model = createModel(config, 'critic', seed);
      const text = JSON.stringify([...model.params].map(([name, p]) => [name, [...p.read()]]));
      disposeModel(model);
      return text;
    };
    assert.equal(values(1), values(1));
    assert.notEqual(values(1), values(2));
  });
  it('names the field of a configuration that cannot run', () => {
    assert.throws(() => createModel({ ...config, head_dim: 3 }, 'actor', 1), {
      name: 'UserError',
      message: /head_dim is 3, expected an even number/,
    });
    assert.throws(() => createModel({ ...config, num_key_value_heads: 3 }, 'actor', 1), /num_attention_heads is 4, expected a multiple/);
    assert.throws(() => createModel({ ...config, vocab_size: 0 }, 'actor', 1), /vocab_size is 0/);
  });
  it('frees everything', () => {
    const before = binding().getNumOfTensors();
    const model = createModel(config, 'critic', 1);
    assert.equal(model.params.size, 1 + 2 * 8 + 2);
    assert.equal(binding().getNumOfTensors() - before, 1 + 2 * 8 + 2);
    disposeModel(model);
    disposeModel(model);
    assert.equal(binding().getNumOfTensors(), before);
  });
});

it('says what computes', () => {
  assert.match(device().tensorflow, /^2\./);
  assert.ok(['CPU', 'GPU'].includes(device().kind));
});
