import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Random } from '../method/seeds.ts';
import { tinyConfig } from '../tests/fixtures/tiny-config.ts';
import type { EngineMode } from './engine/mode.ts';
import { fallbacks } from './engine/mode.ts';
import { tokenLogprobs } from './evaluation.ts';
import { createModel } from './model-parameters.ts';
import { SamplerNetwork } from './sampler-network.ts';
import type { ModelConfig } from './types.ts';

const qwen: ModelConfig = { ...tinyConfig, vocab_size: 48, max_position_embeddings: 320 };
const llama: ModelConfig = {
  ...qwen,
  model_type: 'llama',
  architectures: ['LlamaForCausalLM'],
  attention_bias: true,
  tie_word_embeddings: false,
};

/** A model whose numbers are large enough for mistakes to show. */
function uneven(config: ModelConfig): ReturnType<typeof createModel> {
  const model = createModel(config, 'actor', 3);
  for (const [name, variable] of model.params) {
    const random = new Random(name.length * 97 + variable.size);
    variable.assign(variable.read().map((value) => (/norm$/i.test(name) ? 0.5 : value * 8) + 0.3 * random.next()));
  }
  return model;
}
const random = new Random(5);
const tokens = Array.from({ length: 300 }, () => random.int(48));

/** Log-probability of each token of two sequences in different lanes, fed by prefills up to `start` and then one by one. */
function stepByStep(network: SamplerNetwork, start: number, end: number): number[] {
  const slots = [0, network.slots - 1];
  for (let position = 0; position < start; position += network.prefillTokens) {
    const chunk = tokens.slice(position, Math.min(start, position + network.prefillTokens));
    network.prefill(slots.map((slot) => ({ slot, position, tokens: chunk })));
  }
  const logprobs: number[] = [];
  for (let position = start; position < end; position++) {
    const rows = network.decode(slots.map((slot) => ({ slot, position, token: tokens[position]!, temperature: 1 })));
    for (const { weights, logSum } of rows) logprobs.push(Math.log(weights[tokens[position + 1]!]!) - logSum);
  }
  return logprobs;
}

function withMode<T>(mode: EngineMode, body: () => T): T {
  const before = process.env['TERMINAL_RSI_ENGINE'];
  process.env['TERMINAL_RSI_ENGINE'] = mode;
  try {
    return body();
  } finally {
    if (before === undefined) delete process.env['TERMINAL_RSI_ENGINE'];
    else process.env['TERMINAL_RSI_ENGINE'] = before;
  }
}

for (const [family, config] of [
  ['Qwen 3', qwen],
  ['Llama with biases and an untied head', llama],
] as const) {
  for (const mode of ['eager', 'graph'] as const) {
    test(`decoding over the cache gives what the training pass gives, ${family}, ${mode}`, () => {
      const model = uneven(config);
      const expected = tokenLogprobs(model, { rows: 1, length: tokens.length, tokens, mask: tokens.map((_, i) => (i === 0 ? 0 : 1)) });
      const network = withMode(mode, () => new SamplerNetwork(model, 3, 2));
      // From the middle of a chunk, over the end of a cache block, and up to the fifth of five blocks.
      for (const [start, end] of [
        [50, 70],
        [250, 262],
      ] as const) {
        const found = stepByStep(network, start, end);
        found.forEach((value, i) => {
          const place = start + (i >> 1) + 1;
          assert.ok(Math.abs(value - expected[place]!) < 2e-5, `token ${place}: ${value}, expected ${expected[place]}`);
        });
        // Both lanes compute the same shapes from the same tokens.
        for (let i = 0; i < found.length; i += 2) assert.equal(found[i], found[i + 1]);
      }
      network.dispose();
      assert.deepEqual(fallbacks(), []);
    });
  }
}

test('a temperature changes the weights and not the sum that makes probabilities of logits', () => {
  const network = new SamplerNetwork(uneven(qwen), 2, 1);
  const [plain, cold] = [1, 0.5].map((temperature) => network.decode([{ slot: 0, position: 0, token: 7, temperature }])[0]!);
  assert.equal(plain!.logSum, cold!.logSum);
  plain!.weights.forEach((weight, i) => assert.ok(Math.abs(weight ** 2 - cold!.weights[i]!) < 1e-6));
  network.dispose();
});
