/**
 * Imported models compute what llama.cpp computes, and encode text as it does: small models with random weights of every architecture that can
 * be imported, with the options that they have there.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, it } from 'node:test';
import { loadModel } from '../policy/checkpoint.ts';
import { sequenceLogits } from '../policy/evaluation.ts';
import { disposeModel } from '../policy/model-parameters.ts';
import { readConfig } from '../policy/model-config.ts';
import { loadTokenizer } from '../policy/tokenizer.ts';
import { corpus } from '../tests/fixtures/tokenizer-corpus.ts';
import { smolLm2Python } from '../tests/smollm2.ts';
import { importGguf } from './import-gguf.ts';

const ATTENTION = ['attn_q', 'attn_k', 'attn_v'];
/** What Llama 3.2 divides the frequencies of its 12 pairs by here (heads of 24, theta 500,000): the formula of its config.json. */
const LLAMA3 = { factor: 32, low_freq_factor: 1, high_freq_factor: 4, original_max_position_embeddings: 8192 };
const llama3Factors = Array.from({ length: 12 }, (_, j) => {
  const turns = (8192 * 500_000 ** (-j / 12)) / (2 * Math.PI);
  const share = Math.min(Math.max((turns - 1) / 3, 0), 1);
  return 1 / ((1 - share) / 32 + share);
});

interface Tiny {
  readonly architecture: string;
  readonly pre: string;
  readonly headDim: number;
  readonly tied: boolean;
  readonly biases: readonly string[];
  readonly fields: Readonly<Record<string, number | string>>;
  readonly ropeFactors: readonly number[] | null;
}
const least = { biases: [], fields: { 'rope.freq_base': 10_000.5 }, ropeFactors: null };
const models: Readonly<Record<string, Tiny>> = {
  'Llama with biases and an output matrix of its own': {
    ...least,
    architecture: 'llama',
    pre: 'smollm',
    headDim: 12,
    tied: false,
    biases: [...ATTENTION, 'attn_output'],
  },
  'Llama 3.2, with its rotary factors': {
    ...least,
    architecture: 'llama',
    pre: 'llama-bpe',
    headDim: 24,
    tied: true,
    fields: { 'rope.freq_base': 500_000.5 },
    ropeFactors: llama3Factors,
  },
  'Qwen 2 with linear scaling': {
    ...least,
    architecture: 'qwen2',
    pre: 'qwen2',
    headDim: 12,
    tied: true,
    biases: ATTENTION,
    fields: { ...least.fields, 'rope.scaling.type': 'linear', 'rope.scaling.factor': 2.5 },
  },
  'Qwen 3 with YaRN': {
    ...least,
    architecture: 'qwen3',
    pre: 'gpt-2',
    headDim: 24,
    tied: false,
    fields: {
      ...least.fields,
      'rope.scaling.type': 'yarn',
      'rope.scaling.factor': 4.5,
      'rope.scaling.original_context_length': 32,
    },
  },
};

const python = await smolLm2Python();

describe('imported from GGUF', { skip: 'skip' in python ? python.skip : false }, () => {
  if ('skip' in python) return;
  const environment = python;
  const scratch = mkdtempSync(join(tmpdir(), 'import-gguf-'));
  after(() => rmSync(scratch, { recursive: true }));
  const programs = join(import.meta.dirname, '../tests/llama-cpp');
  const request = join(scratch, 'request.json');
  let count = 0;
  async function write(model: Tiny): Promise<{ readonly gguf: string; readonly output: string }> {
    const gguf = join(scratch, `${count}.gguf`);
    writeFileSync(request, JSON.stringify({ ...model, texts: corpus }));
    await environment.runFile(join(programs, 'tiny-gguf.py'), request, gguf);
    return { gguf, output: join(scratch, String(count++)) };
  }
  for (const [name, tiny] of Object.entries(models)) {
    it(name, async (t) => {
      const { gguf, output } = await write(tiny);
      await importGguf(gguf, output);
      const tokenizer = loadTokenizer(output);
      const tokens = tokenizer.encode(corpus.join(' ')).slice(0, 90);
      const prompts = [1, 17, 40, 90].map((length) => tokens.slice(0, length));
      writeFileSync(request, JSON.stringify({ prompts, top: 50, texts: corpus }));
      const { rows, ids } = JSON.parse(await environment.runFile(join(programs, 'run.py'), gguf, request)) as {
        readonly rows: readonly (readonly (readonly [number, number])[])[];
        readonly ids: readonly number[][];
      };
      const model = loadModel(output, 'actor');
      const logits = sequenceLogits(model, tokens);
      const { vocab_size: vocabulary } = model.config;
      disposeModel(model);
      const off = rows.map((row, i) => {
        const end = (prompts[i] as number[]).length * vocabulary;
        const mine = logits.subarray(end - vocabulary, end);
        const total = Math.log(mine.reduce((sum, l) => sum + Math.exp(l), 0));
        return Math.max(...row.map(([id, logprob]) => Math.abs((mine[id] as number) - total - logprob)));
      });
      t.diagnostic(`log-probabilities differ by at most ${Math.max(...off).toExponential(1)}`);
      assert.ok(
        Math.max(...off) < 1e-3,
        `log-probabilities after ${prompts.map((p) => p.length).join(', ')} tokens differ by ${off.join(', ')}`,
      );
      // Qwen's tokenizer composes characters first (NFC); llama.cpp leaves that out.
      const same = (text: string): boolean => tiny.pre !== 'qwen2' || text === text.normalize('NFC');
      const differing = corpus.filter((text, i) => same(text) && tokenizer.encode(text).join() !== (ids[i] as number[]).join());
      assert.deepEqual(differing, []);
      if (tiny.ropeFactors) assert.deepEqual(readConfig(output).rope_scaling, { rope_type: 'llama3', ...LLAMA3 });
    });
  }
});
