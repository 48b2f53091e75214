import assert from 'node:assert/strict';
import { appendFile, mkdir, mkdtemp, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, it } from 'node:test';
import { Random } from '../../method/seeds.ts';
import { ArtifactStore } from '../../records/artifacts.ts';
import { tearNewestCheckpoint } from './damage.ts';
import { isDurable, Marks } from './marks.ts';

let data: string;
let marks: Marks;
beforeEach(async () => {
  data = await mkdtemp(path.join(tmpdir(), 'terminal-rsi-marks-'));
  marks = new Marks(data);
});
afterEach(() => rm(data, { recursive: true }));
const found = (): string[] => marks.scan().map(({ kind, name }) => `${kind} ${name}`);

async function checkpoint(step: string): Promise<string> {
  const steps = path.join(data, 'runs/key/checkpoints/RPR-1/warm-up/steps');
  await mkdir(path.join(steps, `${step}.tmp-a`), { recursive: true });
  await writeFile(path.join(steps, `${step}.tmp-a`, 'state.json'), '{"some":"state"}');
  return steps;
}

it('counts the complete lines of a journal, each once', async () => {
  const file = path.join(data, 'runs/key/journal/RSR-1/rollout/0.jsonl');
  await mkdir(path.dirname(file), { recursive: true });
  await writeFile(file, '{}\n{}\n{"torn');
  assert.deepEqual(found(), ['episode RSR-1/rollout/0.jsonl#1', 'episode RSR-1/rollout/0.jsonl#2']);
  assert.deepEqual(found(), []);
  await appendFile(file, '\n{}\n');
  assert.deepEqual(found(), ['episode RSR-1/rollout/0.jsonl#3', 'episode RSR-1/rollout/0.jsonl#4']);
});

it('tells verdicts, rewritten tasks, gated tasks and results of trainings from episodes', async () => {
  for (const file of [
    'runs/key/journal/RSR-1/rollout/0-verdicts.jsonl',
    'runs/key/journal/RSR-1/rollout/0-tries.jsonl',
    'runs/key/journal/RSR-1/rewrite/0.jsonl',
    'runs/key/checkpoints/RSR-1/fine-tune/result.jsonl',
    'calibration/embedded.jsonl',
  ]) {
    await mkdir(path.dirname(path.join(data, file)), { recursive: true });
    await writeFile(path.join(data, file), '{}\n');
  }
  assert.deepEqual(found().sort(), [
    'rewrite RSR-1/rewrite/0.jsonl#1',
    'task calibration/embedded.jsonl#1',
    'training-end RSR-1/fine-tune/result#1',
    'verdict RSR-1/rollout/0-verdicts.jsonl#1',
  ]);
});

it('sees a checkpoint being written before it counts as work, and numbers checkpoints by their order', async () => {
  const steps = await checkpoint('step-00000003');
  assert.deepEqual(found(), ['checkpoint-writing RPR-1/warm-up/unfinished-checkpoint#1']);
  assert.equal(marks.size, 0);
  assert.ok(!marks.all.some(isDurable));
  await rename(path.join(steps, 'step-00000003.tmp-a'), path.join(steps, 'step-00000003'));
  await writeFile(path.join(steps, 'step-00000003.json'), '{}');
  await checkpoint('step-00000007');
  assert.deepEqual(found().sort(), ['checkpoint RPR-1/warm-up/checkpoint#1', 'checkpoint-writing RPR-1/warm-up/unfinished-checkpoint#2']);
  assert.equal(marks.size, 1);
});

it('sees new artifacts', async () => {
  const store = new ArtifactStore(path.join(data, 'artifacts'));
  const { sha256 } = await store.putJson('metrics', { a: 1 });
  assert.deepEqual(
    marks.scan(1_000).map(({ name }) => name),
    [`artifact:${sha256}`],
  );
  assert.deepEqual(marks.scan(2_000), []);
});

it('a torn checkpoint has other bytes than before, and the tear is named', async () => {
  const steps = await checkpoint('step-00000003');
  await rename(path.join(steps, 'step-00000003.tmp-a'), path.join(steps, 'step-00000003'));
  for (let seed = 1; seed < 8; seed++) {
    await writeFile(path.join(steps, 'step-00000003', 'state.json'), '{"some":"state"}');
    const told = tearNewestCheckpoint(data, 'RPR-1/warm-up', new Random(seed));
    assert.match(told, /step-00000003\/state\.json (cut to \d+ of 16 bytes)|a bit of step-00000003\/state\.json flipped/);
    const store = new ArtifactStore(path.join(data, 'artifacts'));
    const torn = await store.putDirectory('metrics', path.join(steps, 'step-00000003'));
    await writeFile(path.join(steps, 'step-00000003', 'state.json'), '{"some":"state"}');
    assert.notEqual(torn.sha256, (await store.putDirectory('metrics', path.join(steps, 'step-00000003'))).sha256);
  }
  assert.equal(tearNewestCheckpoint(data, 'RSR-1/fine-tune', new Random(1)), 'there was no checkpoint to damage');
});
