/**
 * A real model against llama.cpp, an implementation that shares no code with ours: SmolLM2-135M-Instruct, imported from its GGUF file, exported
 * by us, and brought back to llama.cpp. docs/checkpoints.md shows the figures that this test prints.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, it } from 'node:test';
import { corpus } from '../tests/fixtures/tokenizer-corpus.ts';
import { smolLm2Directory, smolLm2Python } from '../tests/smollm2.ts';
import { loadModel, readTokenizer, saveModel } from './checkpoint.ts';
import { sequenceLogits } from './evaluation.ts';
import { disposeModel } from './model-parameters.ts';
import { loadTokenizer } from './tokenizer.ts';

const [python, imported] = [await smolLm2Python(), await smolLm2Directory()];
const programs = join(import.meta.dirname, '../tests/llama-cpp');

const TEXT = `You are working in a terminal. Count the lines of notes.txt that mention "error" and write the number to count.txt.
The file has one entry per line, with a date, a level and a message. Lines may be long, and some hold text in other scripts: 漢字, 한국어, ñandú.
A command such as grep -c error notes.txt > count.txt does that; wc -l counts all of them. Check the result with cat count.txt before you say so.`;
/** How many tokens of the text are given before the next one is asked for. */
const LENGTHS = [1, 2, 5, 9, 20, 40, 70, 110];
/** Of the 49,152 tokens the most likely ones are compared; their log-probabilities are normalised over all. */
const TOP = 1000;

describe('SmolLM2-135M beside llama.cpp', { skip: 'skip' in imported ? imported.skip : false }, () => {
  if ('skip' in python || 'skip' in imported) return;
  const scratch = mkdtempSync(join(tmpdir(), 'llama-cpp-'));
  after(() => rmSync(scratch, { recursive: true }));
  const tokenizer = loadTokenizer(imported.directory);
  const tokens = tokenizer.encode(TEXT).slice(0, Math.max(...LENGTHS));
  const prompts = LENGTHS.map((length) => tokens.slice(0, length));
  const model = loadModel(imported.directory, 'actor');
  const vocabulary = model.config.vocab_size;
  const logits = sequenceLogits(model, tokens);
  const ours = LENGTHS.map((length) => logSoftmax(logits.subarray((length - 1) * vocabulary, length * vocabulary)));
  saveModel(model, join(scratch, 'export'), { tokenizer: readTokenizer(imported.directory) });
  disposeModel(model);

  interface Answer {
    /** By prompt: [token id, log-probability], the most likely first. */
    readonly rows: readonly (readonly (readonly [number, number])[])[];
    readonly ids: readonly (readonly number[])[];
  }
  async function llamaCpp(gguf: string): Promise<Answer> {
    if ('skip' in python) throw new Error(python.skip);
    const request = join(scratch, 'request.json');
    writeFileSync(request, JSON.stringify({ prompts, top: TOP, texts: corpus }));
    return JSON.parse(await python.runFile(join(programs, 'run.py'), gguf, request)) as Answer;
  }
  /** Over all prompts: the largest difference of a log-probability, and the largest Kullback-Leibler divergence (nats). */
  function compare({ rows }: Answer): { largest: number; divergence: number } {
    let [largest, divergence] = [0, 0];
    rows.forEach((row, i) => {
      const differences = row.map(([id, theirs]) => ({ theirs, by: theirs - (ours[i]?.[id] as number) }));
      assert.equal(differences.length, TOP);
      largest = Math.max(largest, ...differences.map(({ by }) => Math.abs(by)));
      divergence = Math.max(
        divergence,
        differences.reduce((sum, { theirs, by }) => sum + Math.exp(theirs) * by, 0),
      );
    });
    return { largest, divergence };
  }

  it('an export of ours, read by llama.cpp in float32, gives the same log-probabilities and token ids', async (t) => {
    const gguf = join(scratch, 'f32.gguf');
    await python.runFile(join(programs, 'to-gguf.py'), python.gguf, join(scratch, 'export'), gguf);
    const answer = await llamaCpp(gguf);
    const { largest } = compare(answer);
    t.diagnostic(`float32: log-probabilities differ by at most ${largest.toExponential(1)}`);
    assert.ok(largest < 1e-3, `log-probabilities differ by ${largest}`);
    assert.deepEqual(
      answer.ids,
      corpus.map((text) => tokenizer.encode(text)),
    );
  });
  it('the quantised file itself gives nearly the same distribution (llama.cpp rounds activations to 8 bits there)', async (t) => {
    const { largest, divergence } = compare(await llamaCpp(python.gguf));
    t.diagnostic(`quantised: log-probabilities differ by at most ${largest.toExponential(1)}, KL ${divergence.toExponential(1)}`);
    assert.ok(divergence < 0.05, `KL divergence ${divergence}`);
  });
});

function logSoftmax(logits: Float32Array): Float64Array {
  const highest = logits.reduce((a, b) => Math.max(a, b));
  const total = Math.log(logits.reduce((sum, l) => sum + Math.exp(l - highest), 0));
  return Float64Array.from(logits, (l) => l - highest - total);
}
