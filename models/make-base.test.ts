import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, readFile, readdir, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { loadModel } from '../policy/checkpoint.ts';
import { loadCodec } from '../policy/codec.ts';
import { disposeModel, parameterCount } from '../policy/model-parameters.ts';

const models = fileURLToPath(new URL('.', import.meta.url));
const base = join(models, 'tiny-base');

test('the shipped base policy is in Hugging Face layout, loads as an actor and as a critic, and stays below 8 MB', async () => {
  assert.deepEqual((await readdir(base)).sort(), ['config.json', 'model.safetensors', 'tokenizer.json']);
  const sizes = await Promise.all((await readdir(base)).map(async (file) => (await stat(join(base, file))).size));
  assert.ok(sizes.reduce((a, b) => a + b, 0) <= 8_000_000);
  const actor = loadModel(base, 'actor');
  const critic = loadModel(base, 'critic');
  assert.equal(parameterCount(critic) - parameterCount(actor), actor.config.hidden_size);
  const codec = loadCodec(base);
  const command = 'grep error data/lake.log > docs/moon.txt';
  assert.equal(codec.decode(codec.reply('shell', command).slice(0, -1)), command);
  disposeModel(actor);
  disposeModel(critic);
});

test('the script that makes the base repeats bit for bit', async () => {
  const scratch = await mkdtemp(join(tmpdir(), 'terminal-rsi-base-'));
  try {
    const make = async (name: string): Promise<Buffer[]> => {
      const out = join(scratch, name);
      const args = ['--import', 'tsx', join(models, 'make-base.ts'), '--out', out, '--demonstrations', '60', '--epochs', '1'];
      await promisify(execFile)(process.execPath, args);
      return Promise.all(['config.json', 'tokenizer.json', 'model.safetensors'].map((file) => readFile(join(out, file))));
    };
    assert.deepEqual(await make('a'), await make('b'));
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
});
