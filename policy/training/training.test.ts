import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { tinyConfig } from '../../tests/fixtures/tiny-config.ts';
import { Random } from '../../method/seeds.ts';
import { readTokenizer, saveModel } from '../checkpoint.ts';
import { createModel, disposeModel } from '../model-parameters.ts';
import { LocalTrainer } from '../trainer/local.ts';
import type {
  AdamSettings,
  FineTuneInput,
  ModelConfig,
  PpoInput,
  RewardedEpisode,
  TrainerClient,
  TrainingContext,
  WarmUpInput,
} from '../types.ts';
import { forwardAll } from './batching.ts';
import { Checkpoints } from './checkpointing.ts';
import { warmUpCritic } from './critic-warm-up.ts';
import { fineTuneActor } from './fine-tune.ts';
import { jointPpo } from './joint-ppo.ts';

const config: ModelConfig = {
  ...tinyConfig,
  vocab_size: 32,
  hidden_size: 16,
  intermediate_size: 32,
  num_hidden_layers: 1,
  num_attention_heads: 2,
  head_dim: 8,
  max_position_embeddings: 64,
  num_key_value_heads: 1,
};
const adam: AdamSettings = { learningRate: 0.01, beta1: 0.9, beta2: 0.99, epsilon: 1e-8, weightDecay: 0, maxGradientNorm: 10 };
const root = await mkdtemp(join(tmpdir(), 'training-test-'));
after(() => rm(root, { recursive: true, force: true }));
const trainer = new LocalTrainer();

const tokenizer = join(root, 'tokenizer');
await mkdir(tokenizer);
await writeFile(join(tokenizer, 'tokenizer.json'), '{}');
const actorDirectory = join(root, 'actor');
{
  const model = createModel(config, 'actor', 3);
  saveModel(model, actorDirectory, { tokenizer: readTokenizer(tokenizer) });
  disposeModel(model);
}

let folders = 0;
const folder = (): string => join(root, `run-${folders++}`);
function context(directory = folder(), overrides: Partial<TrainingContext> = {}): TrainingContext {
  return { trainer, checkpointDirectory: directory, progress: () => undefined, signal: new AbortController().signal, ...overrides };
}
async function directoryHash(directory: string): Promise<string> {
  const hash = createHash('sha256');
  for (const name of (await readdir(directory)).sort()) hash.update(name).update(await readFile(join(directory, name)));
  return hash.digest('hex');
}

/** Episodes of two turns with an observation between them; `good` ones repeat one token, the others are random. */
function episodes(count: number): RewardedEpisode[] {
  const random = new Random(17);
  return Array.from({ length: count }, (_, e) => {
    const good = e % 2 === 0;
    const turn = (n: number): number[] => Array.from({ length: n }, () => (good ? 7 : 8 + random.int(20)));
    const prompt = Array.from({ length: 4 + random.int(6) }, () => 3 + random.int(4));
    const parts: [number[], number][] = [
      [prompt, -1],
      [turn(3), 0],
      [[5, 6, 5], -1],
      [turn(2 + random.int(3)), 1],
    ];
    return {
      episodeId: `e${e}`,
      tokens: parts.flatMap(([tokens]) => tokens),
      turnIds: parts.flatMap(([tokens, id]) => tokens.map(() => id)),
      logprobs: parts.flatMap(([tokens]) => tokens.map(() => 0)),
      suite: 's',
      taskId: `t${e}`,
      family: 'f',
      passed: good,
      reward: good ? 1 : 0,
    };
  });
}
async function withBehaviour(batch: RewardedEpisode[]): Promise<RewardedEpisode[]> {
  const handle = await trainer.load({ role: 'actor', directory: actorDirectory });
  const logprobs = await forwardAll(trainer, handle, 'logprobs', batch, { signal: new AbortController().signal });
  await trainer.release(handle);
  return batch.map((episode, i) => ({ ...episode, logprobs: logprobs[i]! }));
}
async function meanLogprob(directory: string, batch: RewardedEpisode[]): Promise<number> {
  const handle = await trainer.load({ role: 'actor', directory });
  const all = (await forwardAll(trainer, handle, 'logprobs', batch, { signal: new AbortController().signal }))
    .flat()
    .filter((value) => value !== 0);
  await trainer.release(handle);
  return all.reduce((sum, value) => sum + value, 0) / all.length;
}
const fineTuneInput = (over: Partial<FineTuneInput> = {}): FineTuneInput => ({
  actorDirectory,
  examples: episodes(10),
  epochs: 3,
  sequencesPerStep: 4,
  adam,
  seed: 5,
  outputDirectory: folder(),
  ...over,
});
const warmUpInput = (over: Partial<WarmUpInput> = {}): WarmUpInput => ({
  actorDirectory,
  batch: episodes(10),
  gamma: 1,
  lambda: 1,
  sequencesPerStep: 4,
  adam,
  seed: 5,
  outputDirectory: folder(),
  optimizerDirectory: folder(),
  ...over,
});
const ppoInput = async (over: Partial<PpoInput> = {}): Promise<PpoInput> => ({
  actorDirectory,
  criticDirectory: actorDirectory,
  referenceDirectory: actorDirectory,
  batch: await withBehaviour(episodes(12)),
  gamma: 0.99,
  lambda: 0.95,
  epochs: 2,
  sequencesPerStep: 4,
  clipLow: 0.2,
  clipHigh: 0.2,
  dualClip: 3,
  valueClip: 0.2,
  klCoefficient: 0.01,
  entropyCoefficient: 0.001,
  actorAdam: { ...adam, learningRate: 0.003 },
  criticAdam: adam,
  stopRules: { maxKl: 10, maxKlToStart: 10, minEntropy: 0, maxTurnLengthRatio: 5, maxClipFraction: 1, maxGradientNorm: 1e6 },
  seed: 5,
  output: { actor: folder(), critic: folder(), actorOptimizer: folder(), criticOptimizer: folder() },
  ...over,
});

test('fine-tuning memorises the agent tokens of its examples', async () => {
  const examples = episodes(4);
  const input = fineTuneInput({ examples, epochs: 120, adam: { ...adam, learningRate: 0.02 } });
  const metrics = await fineTuneActor(context(), input);
  assert.equal(metrics.steps, 120);
  assert.equal(metrics.epochLosses.length, 120);
  assert.ok(
    metrics.epochLosses.at(-1)! < 0.3 && metrics.epochLosses[0]! > 2,
    `losses ${metrics.epochLosses[0]} to ${metrics.epochLosses.at(-1)}`,
  );
  assert.ok((await meanLogprob(input.outputDirectory, examples)) > -0.3);
});

test('how a step is cut into micro-batches does not change the result', async () => {
  const whole = fineTuneInput();
  const cut = fineTuneInput();
  const one = await fineTuneActor(context(), whole);
  const two = await fineTuneActor(context(), cut, { tokenBudget: 20 });
  one.epochLosses.forEach((loss, i) => assert.ok(Math.abs(loss - two.epochLosses[i]!) < 1e-5));
  assert.ok(
    Math.abs((await meanLogprob(whole.outputDirectory, episodes(10))) - (await meanLogprob(cut.outputDirectory, episodes(10)))) < 1e-4,
  );
});

test('warm-up takes exactly four epochs, learns the returns, and leaves the actor as it was', async () => {
  const before = await directoryHash(actorDirectory);
  const metrics = await warmUpCritic(context(), warmUpInput());
  assert.equal(metrics.steps, 4 * Math.ceil(10 / 4));
  assert.equal(metrics.epochs.length, 4);
  assert.ok(metrics.epochs[3]!.valueLoss < metrics.epochs[0]!.valueLoss);
  assert.ok(metrics.epochs[3]!.explainedVariance! > 0);
  assert.equal(await directoryHash(actorDirectory), before);
});

test('warm-up reports no explained variance when the returns are constant', async () => {
  const batch = episodes(6).map((episode) => ({ ...episode, reward: 1 }));
  const metrics = await warmUpCritic(context(), warmUpInput({ batch }));
  assert.deepEqual(
    metrics.epochs.map((epoch) => 'explainedVariance' in epoch),
    [false, false, false, false],
  );
});

test('PPO makes rewarded episodes likelier and the others less likely', async () => {
  const input = await ppoInput();
  const metrics = await jointPpo(context(), input);
  const good = input.batch.filter((episode) => episode.passed);
  const bad = input.batch.filter((episode) => !episode.passed);
  assert.equal(metrics.steps, 6);
  assert.equal(metrics.successRate, 0.5);
  assert.equal(metrics.stop, undefined);
  assert.ok(metrics.entropy > 0 && metrics.gradientNorm > 0 && metrics.criticGradientNorm > 0);
  assert.ok((await meanLogprob(input.output.actor, good)) > (await meanLogprob(actorDirectory, good)) + 0.01);
  assert.ok((await meanLogprob(input.output.actor, bad)) < (await meanLogprob(actorDirectory, bad)));
});

test('PPO stops by rule after an epoch, before the first step for long turns, and before a step whose loss is not finite', async () => {
  const rules = (await ppoInput()).stopRules;
  const clipped = await jointPpo(context(), await ppoInput({ stopRules: { ...rules, minEntropy: 100 } }));
  assert.equal(clipped.stop?.rule, 'minEntropy');
  assert.equal(clipped.steps, 3);
  const long = await ppoInput({ initialTokensPerTurn: 0.5 });
  const turns = await jointPpo(context(), long);
  assert.deepEqual([turns.stop?.rule, turns.steps], ['maxTurnLengthRatio', 0]);
  // A reward whose square is beyond float32: the value loss is infinite.
  const batch = (await withBehaviour(episodes(12))).map((episode, i) => (i === 0 ? { ...episode, reward: 1e30 } : episode));
  const broken = await ppoInput({ batch, sequencesPerStep: 12 });
  const result = await jointPpo(context(), broken);
  assert.deepEqual([result.stop?.rule, result.steps], ['nonFinite', 0]);
  assert.equal(await directoryHash(broken.output.actor), await directoryHash(long.output.actor));
});

/** A trainer that dies after some optimizer steps. */
function dying(after: number): TrainerClient {
  let left = after;
  return {
    load: (request) => trainer.load(request),
    forward: (...all) => trainer.forward(...all),
    forwardBackward: (...all) => trainer.forwardBackward(...all),
    save: (...all) => trainer.save(...all),
    release: (handle) => trainer.release(handle),
    optimStep: async (...all) => {
      if (left-- === 0) throw new Error('the trainer died');
      return trainer.optimStep(...all);
    },
  };
}

test('an interrupted loop that resumes ends with the same bytes as one that was never interrupted', async () => {
  const straight = await ppoInput();
  const metrics = await jointPpo(context(), straight, { checkpointEvery: 2 });
  const directory = folder();
  const resumed = await ppoInput();
  await assert.rejects(jointPpo(context(directory, { trainer: dying(9) }), resumed, { checkpointEvery: 2 }), /died/);
  const steps: number[] = [];
  const again = await jointPpo(context(directory, { progress: ({ step }) => steps.push(step) }), resumed, { checkpointEvery: 2 });
  assert.equal(steps[0], 5, 'resumes after the fourth step');
  assert.deepEqual(again, metrics);
  for (const name of ['actor', 'critic', 'actorOptimizer', 'criticOptimizer'] as const) {
    assert.equal(await directoryHash(resumed.output[name]), await directoryHash(straight.output[name]), name);
  }
});

test('models that wait on disk between their turns end with the same bytes', async () => {
  const [resident, waiting] = [await ppoInput(), await ppoInput()];
  const metrics = await jointPpo(context(), resident);
  // Memory for nothing: every call has to bring its model back.
  assert.deepEqual(await jointPpo(context(folder(), { trainer: new LocalTrainer(0) }), waiting), metrics);
  for (const name of ['actor', 'critic', 'actorOptimizer', 'criticOptimizer'] as const)
    assert.equal(await directoryHash(waiting.output[name]), await directoryHash(resident.output[name]), name);
});

test('a loop that resumed goes on saving after its checkpoint has been removed', async () => {
  const directory = folder();
  const input = fineTuneInput();
  await assert.rejects(fineTuneActor(context(directory, { trainer: dying(1) }), input, { checkpointEvery: 1 }), /died/);
  const metrics = await fineTuneActor(context(directory), input, { checkpointEvery: 1 });
  assert.equal(metrics.steps, 9);
  assert.deepEqual(await readFile(join(input.outputDirectory, 'tokenizer.json'), 'utf8'), '{}');
});

test('a request to stop writes a checkpoint and ends with its reason', async () => {
  const directory = folder();
  const abort = new AbortController();
  const input = fineTuneInput();
  const stopping = context(directory, { signal: abort.signal, progress: ({ step }) => step === 3 && abort.abort(new Error('cancelled')) });
  await assert.rejects(fineTuneActor(stopping, input), /cancelled/);
  const steps: number[] = [];
  await fineTuneActor(context(directory, { progress: ({ step }) => steps.push(step) }), input);
  assert.equal(steps[0], 4);
});

test('a damaged checkpoint is passed over for the one before, and other inputs never resume from it', async () => {
  const directory = folder();
  const first = await Checkpoints.claim(directory, 'inputs');
  for (const step of [1, 2, 3]) await first.commit(step, (into) => writeFile(join(into, 'weights'), `step ${step}`));
  assert.deepEqual((await readdir(directory)).filter((name) => name.endsWith('.json')).length, 2);
  await writeFile(join(directory, 'step-00000003', 'weights'), 'torn');
  assert.equal((await first.newest())?.step, 2);
  assert.equal(await (await Checkpoints.claim(directory, 'other inputs')).newest(), undefined);
});

test('an attempt that was replaced cannot commit', async () => {
  const directory = folder();
  const zombie = await Checkpoints.claim(directory, 'inputs');
  await Checkpoints.claim(directory, 'inputs');
  await assert.rejects(
    zombie.commit(1, (into) => writeFile(join(into, 'weights'), 'late')),
    { code: 'fenced' },
  );
});
