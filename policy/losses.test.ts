/** The loss formulas against numbers of verl, OpenRLHF, slime and SkyRL (tests/fixtures/rl-vectors.json), and what training relies on. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, describe, it } from 'node:test';
import { Learner } from './learner.ts';
import { klK3, policyLoss, sftLoss, valueLoss } from './losses.ts';
import { tokenEntropy, tokenLogprobs, tokenValues } from './evaluation.ts';
import { createModel, disposeModel, type Model } from './model-parameters.ts';
import { logprobEntropyHead } from './model-ops.ts';
import { tf } from './tensorflow.ts';
import { tinyConfig } from '../tests/fixtures/tiny-config.ts';
import type { LossSpec, LossSums, SequenceBatch } from './types.ts';

interface Vector {
  readonly name: string;
  // The fields differ by vector; each test knows its own.
  readonly inputs: Record<string, number[] & number[][] & number>;
  readonly expected: Record<string, number[] & number>;
}
const { vectors } = JSON.parse(readFileSync(new URL('../tests/fixtures/rl-vectors.json', import.meta.url), 'utf8')) as {
  vectors: Vector[];
};
function vector(name: string): Vector {
  const found = vectors.find((v) => v.name === name);
  if (found === undefined) throw new Error(`no vector ${name}`);
  return found;
}
/** The entries at mask 1, flat. */
function atMask(values: number[][], mask: number[][]): number[] {
  return values.flat().filter((_, i) => mask.flat()[i] === 1);
}
function numbers(compute: () => tf.Tensor): number[] {
  return Array.from(tf.tidy(() => compute().dataSync<'float32'>()));
}
function mean(values: readonly number[]): number {
  return values.reduce((a, b) => a + b, 0) / values.length;
}
function close(actual: ArrayLike<number>, expected: ArrayLike<number>, tolerance = 1e-5): void {
  assert.equal(actual.length, expected.length);
  for (let i = 0; i < expected.length; i++) {
    const [a, e] = [actual[i] as number, expected[i] as number];
    assert.ok(Math.abs(a - e) <= tolerance * Math.max(1, Math.abs(e)), `entry ${i}: ${a}, expected ${e}`);
  }
}

describe('policy loss', () => {
  for (const [name, dualClip] of [
    ['policy_loss_token-mean_dualclip3', 3],
    ['policy_loss_token-mean_dualclipoff', 0],
    ['policy_loss_openrlhf_token_mean', 0],
  ] as const) {
    it(`equals ${name}`, () => {
      const { inputs, expected } = vector(name);
      const pick = (field: string): number[] => atMask(inputs[field] as number[][], inputs['mask'] as number[][]);
      const [logp, old, adv] = [pick('logp'), pick('old_logp'), pick('adv')];
      const clip = { clipLow: 0.2, clipHigh: 0.2, dualClip };
      const part = (which: 'loss' | 'clipped'): number[] =>
        numbers(() => policyLoss(tf.tensor1d(logp), tf.tensor1d(old), tf.tensor1d(adv), clip)[which]);
      close([mean(part('loss'))], [expected['loss'] as number]);
      close([mean(part('clipped'))], [(expected['clipfrac'] ?? expected['clip_ratio']) as number]);
      close([mean(old.map((o, i) => o - (logp[i] as number)))], [expected['ppo_kl'] as number]);
    });
  }
  it('takes unequal bounds (policy_loss_openrlhf_seq_cliphigher_dual3)', () => {
    const { inputs, expected } = vector('policy_loss_openrlhf_seq_cliphigher_dual3');
    const clip = { clipLow: 0.2, clipHigh: 0.28, dualClip: 3 };
    const rows = [0, 1].map((row) => {
      const pick = (field: string): tf.Tensor =>
        tf.tensor1d(atMask([(inputs[field] as number[][])[row] as number[]], [(inputs['mask'] as number[][])[row] as number[]]));
      return mean(numbers(() => policyLoss(pick('logp'), pick('old_logp'), pick('adv'), clip).loss));
    });
    close([mean(rows)], [expected['loss'] as number]);
  });
  for (const name of ['dual_clip_slime', 'dual_clip_skyrl']) {
    it(`equals ${name}`, () => {
      const { inputs, expected } = vector(name);
      const clip = { clipLow: inputs['clip'] as number, clipHigh: inputs['clip'] as number, dualClip: inputs['clip_c'] as number };
      const logp = (inputs['ratio'] as number[]).map(Math.log);
      close(
        numbers(() => policyLoss(tf.tensor1d(logp), tf.zeros([logp.length]), tf.tensor1d(inputs['adv'] as number[]), clip).loss),
        expected['per_token_loss'] as number[],
      );
    });
  }
});

describe('value loss', () => {
  const { inputs, expected } = vector('value_loss_clipped');
  const pick = (field: string): tf.Tensor => tf.tensor1d(atMask(inputs[field] as number[][], inputs['mask'] as number[][]));
  it('equals verl with the clip', () => {
    close([mean(numbers(() => valueLoss(pick('vpred'), pick('old_v'), pick('returns'), 0.2).loss))], [expected['verl'] as number]);
    close(
      [mean(numbers(() => valueLoss(pick('vpred'), pick('old_v'), pick('returns'), 0.2).clipped))],
      [expected['verl_clipfrac'] as number],
    );
  });
  it('equals OpenRLHF without it', () => {
    close(
      [mean(numbers(() => valueLoss(pick('vpred'), pick('old_v'), pick('returns'), 0).loss))],
      [expected['openrlhf_unclipped'] as number],
    );
  });
});

it('the k3 estimate of KL equals verl, bounds included', () => {
  const { inputs, expected } = vector('kl_estimators');
  close(
    numbers(() => klK3(tf.tensor1d(inputs['logp'] as number[]), tf.tensor1d(inputs['ref_logp'] as number[]))),
    expected['k3'] as number[],
  );
});

it('the entropy of the output head equals verl', () => {
  const { inputs, expected } = vector('entropy');
  // With the identity as embedding the hidden states are the logits.
  const entropy = numbers(() =>
    logprobEntropyHead(tf.tensor2d(inputs['logits'] as number[][]), tf.eye(4), tf.tensor1d([0, 1, 2], 'int32')).slice([0, 1], [3, 1]),
  );
  close(entropy, expected['entropy'] as number[]);
});

it('the SFT loss equals OpenRLHF', () => {
  const { inputs, expected } = vector('sft_masked_nll');
  const logp = atMask(inputs['token_logp'] as number[][], inputs['mask'] as number[][]);
  close([mean(numbers(() => sftLoss(tf.tensor1d(logp))))], [expected['token_mean'] as number]);
});

describe('forwardBackward', () => {
  const actor = createModel(tinyConfig, 'actor', 1);
  const critic = createModel(tinyConfig, 'critic', 2);
  after(() => {
    disposeModel(actor);
    disposeModel(critic);
  });
  /** One micro-batch on its own: its sums and gradients. */
  const lossAndGradients = (model: Model, loss: LossSpec, on: SequenceBatch): { sums: LossSums; gradients: Map<string, Float32Array> } => {
    const learner = new Learner(model);
    const sums = learner.forwardBackward(loss, on);
    return { sums, gradients: learner.gradients() };
  };
  const batch: SequenceBatch = { rows: 2, length: 4, tokens: [1, 5, 6, 2, 1, 7, 2, 0], mask: [0, 1, 0, 1, 0, 1, 1, 0] };
  const row = (r: number): SequenceBatch => ({
    rows: 1,
    length: 4,
    tokens: batch.tokens.slice(4 * r, 4 * r + 4),
    mask: batch.mask.slice(4 * r, 4 * r + 4),
  });
  const cut = (loss: LossSpec, r: number): LossSpec =>
    Object.fromEntries(
      Object.entries(loss).map(([k, v]: [string, unknown]) => [k, Array.isArray(v) ? (v as number[]).slice(4 * r, 4 * r + 4) : v]),
    ) as unknown as LossSpec;
  const ppo = (changes: object = {}): LossSpec => ({
    kind: 'ppo',
    denominator: 4,
    advantages: [0, 1, 0, -1, 0, 2, -0.5, 0],
    oldLogprobs: Array.from(tokenLogprobs(actor, batch)),
    clipLow: 0.2,
    clipHigh: 0.2,
    dualClip: 3,
    klCoefficient: 0,
    referenceLogprobs: Array.from(tokenLogprobs(actor, batch)),
    entropyCoefficient: 0,
    ...changes,
  });
  const value: LossSpec = {
    kind: 'value',
    denominator: 4,
    returns: [0, 1, 0, 1, 0, -1, -1, 0],
    oldValues: new Array<number>(8).fill(0),
    clip: 0.2,
  };

  it('gives the same gradient however a step is cut into micro-batches', () => {
    for (const [model, loss] of [
      [actor, { kind: 'sft', denominator: 4 }],
      [actor, ppo()],
      [critic, value],
    ] as const) {
      const whole = lossAndGradients(model, loss, batch);
      const parts = [0, 1].map((r) => lossAndGradients(model, cut(loss, r), row(r)));
      close([whole.sums.loss], [parts.reduce((sum, p) => sum + p.sums.loss, 0)]);
      for (const [name, gradient] of whole.gradients) {
        const sum = gradient.map((_, i) => parts.reduce((total, p) => total + (p.gradients.get(name)?.[i] as number), 0));
        close(gradient, sum, 1e-5);
      }
    }
  });
  it('gives, at ratio 1, a PPO loss of minus the mean advantage and no clipping', () => {
    const { sums } = lossAndGradients(actor, ppo(), batch);
    close([sums.loss, sums.clipped as number, sums.kl as number, sums.klReference as number], [-(1 - 1 + 2 - 0.5) / 4, 0, 0, 0]);
    close([sums.entropy as number], [tokenEntropy(actor, batch).reduce((a, b) => a + b, 0)]);
    assert.equal(sums.tokens, 4);
  });
  it('adds KL penalty and entropy bonus with their weights', () => {
    const reference = Array.from(tokenLogprobs(actor, batch), (v, i) => v + 0.1 * i);
    const { sums } = lossAndGradients(actor, ppo({ klCoefficient: 0.5, entropyCoefficient: 0.25, referenceLogprobs: reference }), batch);
    const k3 = [1, 3, 5, 6].map((i) => Math.exp(0.1 * i) - 0.1 * i - 1).reduce((a, b) => a + b, 0);
    close([sums.klReference as number], [k3], 1e-4);
    close([sums.loss], [(-1.5 + 0.5 * k3 - 0.25 * (sums.entropy as number)) / 4], 1e-4);
  });
  it('has loss 0 and zero gradients without masked tokens', () => {
    const { sums, gradients } = lossAndGradients(critic, value, { ...batch, mask: new Array<number>(8).fill(0) });
    assert.deepEqual(sums, { loss: 0, tokens: 0, clipped: 0 });
    for (const gradient of gradients.values()) assert.ok(gradient.every((g) => g === 0));
    assert.deepEqual([...gradients.keys()], [...critic.params.keys()]);
  });
  it('returns a loss that is not finite, and drops the gradients of its step', () => {
    for (const advantage of [NaN, -Infinity]) {
      const { sums, gradients } = lossAndGradients(actor, ppo({ advantages: [0, advantage, 0, 0, 0, 0, 0, 0] }), batch);
      assert.ok(!Number.isFinite(sums.loss));
      for (const gradient of gradients.values()) assert.ok(gradient.every((g) => g === 0));
    }
  });
  it('names what does not fit', () => {
    assert.throws(
      () => lossAndGradients(critic, { kind: 'sft', denominator: 4 }, batch),
      /sft loss: the model is a critic, expected actor/,
    );
    assert.throws(() => lossAndGradients(actor, { kind: 'sft', denominator: 0 }, batch), /denominator 0/);
    assert.throws(() => lossAndGradients(actor, ppo({ advantages: [1] }), batch), /advantages has 1 entries, expected 8/);
    assert.throws(() => tokenValues(actor, batch), /valueHead: the model has none of this name/);
  });
});
