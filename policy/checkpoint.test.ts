import assert from 'node:assert/strict';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, it } from 'node:test';
import { tinyConfig } from '../tests/fixtures/tiny-config.ts';
import { writeDirectoryAtomically } from './checkpoint-files.ts';
import { loadModel, readTokenizer, saveModel } from './checkpoint.ts';
import { createModel, disposeModel, type Model } from './model-parameters.ts';
import { readSafetensors, type TensorEntry, writeSafetensors } from './safetensors.ts';

const root = mkdtempSync(join(tmpdir(), 'checkpoint-'));
after(() => rmSync(root, { recursive: true }));
let count = 0;
const fresh = (): string => join(root, String(count++));

function values(model: Model): [string, Float32Array][] {
  return [...model.params].map(([name, p]) => [name, p.read()]);
}
/** Saves `model`, lets `change` edit the tensors or the configuration, and returns the directory. */
function edited(
  model: Model,
  change: { tensors?: (tensors: ReturnType<typeof readSafetensors>) => void; config?: Record<string, unknown> },
): string {
  const directory = fresh();
  saveModel(model, directory);
  const weights = join(directory, 'model.safetensors');
  const tensors = readSafetensors(weights);
  change.tensors?.(tensors);
  rmSync(weights);
  writeSafetensors(weights, tensors);
  writeFileSync(join(directory, 'config.json'), JSON.stringify({ ...tinyConfig, ...change.config }));
  return directory;
}

describe('policy and critic directories', () => {
  const actor = createModel(tinyConfig, 'actor', 1);
  const critic = createModel(tinyConfig, 'critic', 2);
  critic.params.get('valueHead')?.assign(Float32Array.from({ length: 8 }, (_, i) => i));
  after(() => {
    disposeModel(actor);
    disposeModel(critic);
  });

  it('come back bit by bit, and are written again byte by byte', () => {
    for (const model of [actor, critic]) {
      const [first, second] = [fresh(), fresh()];
      saveModel(model, first);
      const loaded = loadModel(first, model.role);
      assert.deepEqual(values(loaded), values(model));
      assert.deepEqual(loaded.config, tinyConfig);
      saveModel(loaded, second);
      for (const file of ['config.json', 'model.safetensors'])
        assert.deepEqual(readFileSync(join(second, file)), readFileSync(join(first, file)));
      disposeModel(loaded);
    }
  });
  it('use the names and shapes of Hugging Face', () => {
    const directory = fresh();
    saveModel(critic, directory);
    const shapes = new Map([...readSafetensors(join(directory, 'model.safetensors'))].map(([name, { shape }]) => [name, shape.join()]));
    assert.equal(shapes.get('model.embed_tokens.weight'), '11,8');
    assert.equal(shapes.get('model.layers.1.self_attn.q_proj.weight'), '16,8');
    assert.equal(shapes.get('model.layers.1.self_attn.k_proj.weight'), '8,8');
    assert.equal(shapes.get('model.layers.1.self_attn.o_proj.weight'), '8,16');
    assert.equal(shapes.get('model.layers.1.self_attn.q_norm.weight'), '4');
    assert.equal(shapes.get('model.layers.0.mlp.gate_proj.weight'), '6,8');
    assert.equal(shapes.get('model.layers.0.mlp.down_proj.weight'), '8,6');
    assert.equal(shapes.get('model.layers.0.post_attention_layernorm.weight'), '8');
    assert.equal(shapes.get('model.norm.weight'), '8');
    assert.equal(shapes.get('value_head.weight'), '1,8');
    assert.equal(shapes.size, 2 * 11 + 3);
  });
  it('give a critic the trunk of a policy and a zero value head', () => {
    const directory = fresh();
    saveModel(actor, directory);
    const loaded = loadModel(directory, 'critic');
    assert.deepEqual(values(loaded), [...values(actor), ['valueHead', new Float32Array(8)]]);
    disposeModel(loaded);
  });
  it('never pass a critic off as a policy', () => {
    const directory = fresh();
    saveModel(critic, directory);
    assert.throws(() => loadModel(directory, 'actor'), { name: 'UserError', message: /value_head\.weight.*critic, expected a policy/ });
  });
  it('take the tokenizer along, and miss it when it is read', () => {
    const [source, target] = [fresh(), fresh()];
    mkdirSync(source);
    assert.throws(() => readTokenizer(source), /tokenizer\.json: does not exist/);
    writeFileSync(join(source, 'tokenizer.json'), '{"version":"1.0"}');
    const tokenizer = readTokenizer(source);
    rmSync(source, { recursive: true });
    saveModel(actor, target, { tokenizer });
    assert.equal(readFileSync(join(target, 'tokenizer.json'), 'utf8'), '{"version":"1.0"}');
  });
  it('take the chat template and generation settings along', () => {
    const [source, target] = [fresh(), fresh()];
    mkdirSync(source);
    const files = ['tokenizer.json', 'tokenizer_config.json', 'special_tokens_map.json', 'generation_config.json', 'chat_template.jinja'];
    for (const file of files) writeFileSync(join(source, file), `content of ${file}`);
    writeFileSync(join(source, 'README.md'), 'stays');
    saveModel(actor, target, { tokenizer: readTokenizer(source) });
    assert.deepEqual(readdirSync(target).sort(), [...files, 'config.json', 'model.safetensors'].sort());
    for (const file of files) assert.equal(readFileSync(join(target, file), 'utf8'), `content of ${file}`);
  });
  it('are written in 16 bits and in shards if asked, and come back rounded', () => {
    const directory = fresh();
    saveModel(actor, directory, { type: 'float16', shardBytes: 500 });
    assert.equal(existsSync(join(directory, 'model.safetensors')), false);
    assert.equal((JSON.parse(readFileSync(join(directory, 'config.json'), 'utf8')) as { torch_dtype: string }).torch_dtype, 'float16');
    const loaded = loadModel(directory, 'actor');
    for (const [name, original] of values(actor)) {
      const rounded = loaded.params.get(name)?.read() as Float32Array;
      original.forEach((value, i) => assert.ok(Math.abs(value - (rounded[i] as number)) <= Math.abs(value) * 2 ** -11 + 2 ** -25));
    }
    disposeModel(loaded);
  });
  it('refuse a type that cannot hold a value', () => {
    const large = createModel(tinyConfig, 'actor', 3);
    large.params.get('norm')?.assign(new Float32Array(8).fill(70000));
    const directory = fresh();
    assert.throws(() => saveModel(large, directory, { type: 'float16' }), {
      name: 'UserError',
      message: /model\.norm\.weight holds 70000/,
    });
    assert.equal(existsSync(directory), false);
    disposeModel(large);
  });
  it('may have an output matrix of their own, which a critic does without', () => {
    const untied = createModel({ ...tinyConfig, model_type: 'llama', tie_word_embeddings: false, attention_bias: true }, 'actor', 4);
    const directory = fresh();
    saveModel(untied, directory);
    const names = [...readSafetensors(join(directory, 'model.safetensors')).keys()];
    assert.ok(names.includes('lm_head.weight') && names.includes('model.layers.1.self_attn.o_proj.bias'));
    assert.ok(!names.some((name) => name.includes('q_norm')));
    const [again, value] = [loadModel(directory, 'actor'), loadModel(directory, 'critic')];
    assert.deepEqual(values(again), values(untied));
    assert.equal(value.params.has('head'), false);
    for (const model of [untied, again, value]) disposeModel(model);
  });
  it('are read from shards too, and with a stored copy of the tied output matrix', () => {
    const directory = edited(actor, { tensors: (t) => t.set('lm_head.weight', t.get('model.embed_tokens.weight') as TensorEntry) });
    const all = [...readSafetensors(join(directory, 'model.safetensors'))];
    writeSafetensors(join(directory, 'a.safetensors'), new Map(all.slice(0, 5)));
    writeSafetensors(join(directory, 'b.safetensors'), new Map(all.slice(5)));
    rmSync(join(directory, 'model.safetensors'));
    const map = Object.fromEntries(all.map(([name], i) => [name, i < 5 ? 'a.safetensors' : 'b.safetensors']));
    writeFileSync(join(directory, 'model.safetensors.index.json'), JSON.stringify({ weight_map: map }));
    const loaded = loadModel(directory, 'actor');
    assert.deepEqual(values(loaded), values(actor));
    disposeModel(loaded);
  });
  it('name the file, the tensor and what was expected', () => {
    const fails = (directory: string, message: RegExp): void =>
      assert.throws(() => loadModel(directory, 'actor'), { name: 'UserError', message });
    fails(fresh(), /config\.json: .*expected the configuration/);
    fails(edited(actor, { tensors: (t) => t.delete('model.norm.weight') }), /model\.norm\.weight is missing, expected shape \[8\]/);
    fails(
      edited(actor, { tensors: (t) => t.set('model.norm.weight', { shape: [4], data: new Float32Array(4) }) }),
      /model\.norm\.weight has shape \[4\], expected \[8\]/,
    );
    fails(edited(actor, { tensors: (t) => t.set('model.bias', { shape: [1], data: new Float32Array(1) }) }), /model\.bias has no place/);
    fails(edited(actor, { config: { model_type: 'gpt2' } }), /config\.json: model_type is "gpt2", expected "qwen3" or "llama"/);
    fails(edited(actor, { config: { attention_bias: true } }), /q_proj\.bias is missing, expected shape \[16\]/);
    fails(
      edited(actor, { tensors: (t) => t.set('lm_head.weight', { shape: [11, 8], data: new Float32Array(88) }) }),
      /lm_head\.weight differs from model\.embed_tokens\.weight/,
    );
    fails(edited(actor, { config: { hidden_size: null } }), /hidden_size is/);
  });
});

describe('safetensors', () => {
  /** A file with one tensor of the given type and 16-bit patterns. */
  function halves(dtype: string, bits: number[]): string {
    const path = fresh();
    const header = Buffer.from(JSON.stringify({ x: { dtype, shape: [bits.length], data_offsets: [0, 2 * bits.length] } }));
    const length = Buffer.alloc(8);
    length.writeBigUInt64LE(BigInt(header.length));
    writeFileSync(path, Buffer.concat([length, header, Buffer.from(Uint16Array.from(bits).buffer)]));
    return path;
  }
  it('reads bfloat16', () => {
    assert.deepEqual(Array.from(readSafetensors(halves('BF16', [0x3f80, 0xc040, 0x4049, 0])).get('x')?.data ?? []), [1, -3, 3.140625, 0]);
  });
  it('reads float16 with subnormal numbers and infinity', () => {
    const read = Array.from(readSafetensors(halves('F16', [0x3c00, 0xc200, 0x3555, 0x0001, 0x7c00, 0x8000])).get('x')?.data ?? []);
    assert.deepEqual(read, [1, -3, 0.333251953125, 2 ** -24, Infinity, -0]);
  });
  it('refuses other types and files that are cut off', () => {
    assert.throws(() => readSafetensors(halves('I16', [1])), {
      name: 'UserError',
      message: /tensor x has type I16, expected F32, BF16, F16/,
    });
    const path = halves('F16', [1, 2, 3]);
    writeFileSync(path, readFileSync(path).subarray(0, -2));
    assert.throws(() => readSafetensors(path), { name: 'UserError', message: /tensor x of shape \[3\]/ });
    writeFileSync(path, 'not a model');
    assert.throws(() => readSafetensors(path), { name: 'UserError', message: /expected a safetensors file/ });
  });
  it('aligns its data to 8 bytes', () => {
    const path = fresh();
    writeSafetensors(path, new Map([['ü', { shape: [2], data: Float32Array.of(1.5, -2) }]]));
    assert.equal(readFileSync(path).readBigUInt64LE(0) % 8n, 0n);
    assert.deepEqual(readSafetensors(path).get('ü'), { shape: [2], data: Float32Array.of(1.5, -2) });
  });
});

describe('writeDirectoryAtomically', () => {
  it('leaves nothing when filling fails', () => {
    const directory = fresh();
    assert.throws(() =>
      writeDirectoryAtomically(directory, (temporary) => {
        writeFileSync(join(temporary, 'half'), 'x');
        throw new Error('disk full');
      }),
    );
    assert.deepEqual(
      readdirSync(root).filter((name) => name.startsWith(`${count - 1}`) && name.includes('partial')),
      [],
    );
    assert.ok(!existsSync(directory));
  });
  it('never overwrites', () => {
    const directory = fresh();
    mkdirSync(directory);
    assert.throws(() => writeDirectoryAtomically(directory, () => undefined), /exists, expected a new directory/);
  });
});
