/** Predicted memory beside what a process of its own grows by, and what is done about it. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { tinyConfig } from '../tests/fixtures/tiny-config.ts';
import { activationBytes, needsRecomputing, predictMemory, refuseWhatDoesNotFit } from './memory.ts';
import { countParameters } from './parameter-shapes.ts';
import type { ModelConfig } from './types.ts';

/** Prediction and measurement may differ by this factor. */
const FACTOR = 1.6;
const config: ModelConfig = {
  ...tinyConfig,
  hidden_size: 128,
  intermediate_size: 384,
  head_dim: 32,
  num_hidden_layers: 6,
  max_position_embeddings: 1024,
};
const shape = { rows: 4, length: 512 };

describe('predicted memory', () => {
  for (const recompute of [false, true]) {
    it(`is that of a process within a factor of ${FACTOR}, ${recompute ? 'activations computed twice' : 'activations kept'}`, () => {
      const script = fileURLToPath(new URL('../tests/fixtures/training-memory.ts', import.meta.url));
      const input = JSON.stringify({ config, ...shape, recompute });
      const measured = Number(
        execFileSync(process.execPath, ['--import', 'tsx', script, input], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }),
      );
      const { weights, training } = predictMemory([{ role: 'actor', config }], shape, 2);
      const predicted = weights + training + activationBytes(config, shape, recompute);
      const ratio = measured / predicted;
      assert.ok(ratio > 1 / FACTOR && ratio < FACTOR, `measured ${measured / 1e6} MB, predicted ${predicted / 1e6} MB`);
    });
  }
  it('is refused with its figures where the machine is too small, and activations are computed twice before that', () => {
    const large = { ...config, hidden_size: 4096, intermediate_size: 12_288, num_hidden_layers: 32 };
    assert.throws(() => refuseWhatDoesNotFit([{ role: 'actor', config: large }], 1000, 4096, 2, 24e9), {
      name: 'UserError',
      message: /training actor on 4 x 1024 tokens takes about \d+\.\d GB: weights \d+\.\d GB, .* the machine has 24\.0 GB/,
    });
    refuseWhatDoesNotFit([{ role: 'actor', config }], 1000, 4096, 2, 24e9);
    const whole = activationBytes(config, shape, false);
    assert.ok(activationBytes(config, shape, true) < whole / 2);
    assert.deepEqual([needsRecomputing(whole, 2 * whole), needsRecomputing(whole, 10 * whole)], [true, false]);
    assert.equal(predictMemory([{ role: 'actor', config }], shape, 2, 2 * whole).recompute, true);
  });
  it('counts every parameter', () =>
    assert.equal(countParameters(tinyConfig, 'critic') - countParameters(tinyConfig, 'actor'), tinyConfig.hidden_size));
});
