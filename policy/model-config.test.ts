import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, it } from 'node:test';
import { attentionParts, configText, readConfig, stopTokens } from './model-config.ts';
import type { ModelConfig } from './types.ts';

const directory = mkdtempSync(join(tmpdir(), 'model-config-'));
after(() => rmSync(directory, { recursive: true }));

/** The least that a file holds. */
const least = {
  vocab_size: 11,
  hidden_size: 8,
  intermediate_size: 6,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  max_position_embeddings: 16,
  eos_token_id: 2,
};
function read(fields: Record<string, unknown>): ModelConfig {
  writeFileSync(join(directory, 'config.json'), JSON.stringify({ ...least, ...fields }));
  return readConfig(directory);
}

describe('config.json', () => {
  it('gets the defaults of its family', () => {
    const llama = read({ model_type: 'llama' });
    assert.deepEqual(
      [llama.num_key_value_heads, llama.head_dim, llama.rope_theta, llama.rms_norm_eps, llama.tie_word_embeddings],
      [4, 2, 10_000, 1e-6, false],
    );
    assert.equal(read({ model_type: 'qwen3' }).head_dim, 128);
    assert.equal(read({ model_type: 'llama', head_dim: null }).head_dim, 2);
    assert.deepEqual(read({ model_type: 'mistral', sliding_window: null }).architectures, ['MistralForCausalLM']);
  });
  it('says which parts the attention has', () => {
    const parts = (fields: Record<string, unknown>): object => attentionParts(read(fields));
    assert.deepEqual(parts({ model_type: 'qwen3' }), { qkNorm: true, qkvBias: false, outputBias: false });
    assert.deepEqual(parts({ model_type: 'llama', attention_bias: true }), { qkNorm: false, qkvBias: true, outputBias: true });
    assert.deepEqual(parts({ model_type: 'qwen2' }), { qkNorm: false, qkvBias: true, outputBias: false });
  });
  it('may name one or several tokens that end a text, and none that begins it', () => {
    const config = read({ model_type: 'llama', eos_token_id: [2, 7] });
    assert.deepEqual(stopTokens(config), [2, 7]);
    assert.equal('bos_token_id' in config, false);
    assert.deepEqual(stopTokens(read({ model_type: 'llama', bos_token_id: null })), [2]);
  });
  it('is written with the fields that nobody here reads, and reads back the same', () => {
    const config = read({
      model_type: 'llama',
      rope_parameters: { rope_type: 'linear', factor: 2, rope_theta: 500 },
      initializer_range: 0.041,
      transformers_version: '5.24.0',
      pad_token_id: null,
      dtype: 'bfloat16',
    });
    const text = configText(config, 'float16');
    const written = JSON.parse(text) as Record<string, unknown>;
    assert.equal(written['initializer_range'], 0.041);
    assert.equal(written['pad_token_id'], null);
    assert.equal(written['torch_dtype'], 'float16');
    assert.deepEqual([written['rope_theta'], written['rope_scaling']], [500, { rope_type: 'linear', factor: 2 }]);
    assert.equal('rope_parameters' in written || 'dtype' in written || 'other' in written, false);
    writeFileSync(join(directory, 'config.json'), text);
    assert.deepEqual(readConfig(directory), config);
    assert.equal(configText(readConfig(directory), 'float16'), text);
  });
  it('is refused by the field that we cannot follow', () => {
    const fails = (fields: Record<string, unknown>, message: RegExp): void =>
      assert.throws(() => read(fields), { name: 'UserError', message }, JSON.stringify(fields));
    fails({}, /config\.json: model_type is missing, expected "qwen3" or "llama" or "qwen2" or "mistral"/);
    fails({ model_type: 'gemma2' }, /model_type is "gemma2"/);
    const llama = (fields: Record<string, unknown>, message: RegExp): void => fails({ model_type: 'llama', ...fields }, message);
    llama({ hidden_act: 'gelu' }, /hidden_act is "gelu", expected none or "silu"/);
    llama({ mlp_bias: true }, /mlp_bias is true/);
    llama({ quantization_config: { bits: 4 } }, /quantization_config is \{"bits":4\}, expected none/);
    llama({ partial_rotary_factor: 0.5 }, /partial_rotary_factor is 0\.5/);
    llama({ layer_types: ['full_attention', 'sliding_attention'] }, /layer_types is .*expected full_attention in every layer/);
    llama({ eos_token_id: null }, /eos_token_id is null, expected one or several token ids/);
    llama({ eos_token_id: [2, 11] }, /eos_token_id is \[2,11\]/);
    llama({ bos_token_id: 11 }, /bos_token_id is 11/);
    llama({ hidden_size: undefined }, /hidden_size is missing, expected a positive whole number/);
    llama({ num_key_value_heads: 3 }, /num_attention_heads is 4, expected a multiple of num_key_value_heads/);
    fails({ model_type: 'qwen2', attention_bias: true }, /attention_bias is true/);
    fails({ model_type: 'qwen3', use_sliding_window: true }, /use_sliding_window is true/);
    fails({ model_type: 'mistral', sliding_window: 8 }, /sliding_window is 8, expected null or at least max_position_embeddings \(16\)/);
    // transformers takes 4096 for a missing window there.
    fails({ model_type: 'mistral', max_position_embeddings: 8192 }, /sliding_window is missing/);
  });
  it('is refused by the rotary variant, or what that lacks', () => {
    const fails = (scaling: unknown, message: RegExp): void =>
      assert.throws(() => read({ model_type: 'llama', rope_scaling: scaling }), { name: 'UserError', message });
    fails({ rope_type: 'longrope', factor: 2 }, /rope_scaling\.rope_type is "longrope", expected "default" or "linear" or "dynamic"/);
    fails({ type: 'linear' }, /rope_scaling\.factor is missing, expected a positive number \(linear\)/);
    fails({ rope_type: 'llama3', factor: 8, low_freq_factor: 1 }, /rope_scaling\.high_freq_factor is missing/);
    fails({ rope_type: 'yarn', factor: -1 }, /rope_scaling\.factor is -1/);
    fails({ rope_type: 'default', partial_rotary_factor: 0.5 }, /rope_scaling\.partial_rotary_factor is 0\.5/);
    fails('linear', /rope_scaling is "linear", expected an object/);
  });
});
