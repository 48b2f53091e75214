/** Demonstrations: right without noise, wrong often enough with it, and never about a task that is evaluated or trained on. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { EmbeddedProvider } from '../environment/embedded/provider.ts';
import { runCommands } from '../environment/harness/harness.ts';
import { SHELL_IMAGE } from '../environment/docker/shell-image.ts';
import type { Task, Tier } from '../environment/types.ts';
import { verify } from '../environment/verifier/verifier.ts';
import { Random } from '../method/seeds.ts';
import { DEFAULT_NOISE, NO_NOISE, demonstration, demonstrationStream } from './demonstrations.ts';
import type { DemonstrationItem, Noise } from './demonstrations.ts';
import { identity } from './family.ts';
import { HELD_OUT, TRAINED } from './families/index.ts';
import { renderTask } from './render.ts';
import { allTasks } from './splits.ts';

const TIERS: readonly Tier[] = ['easy', 'medium', 'hard', 'extreme'];
const CLEAN: Record<Tier, Noise> = { easy: NO_NOISE, medium: NO_NOISE, hard: NO_NOISE, extreme: NO_NOISE };

function take(count: number, seed: number, noise: Readonly<Record<Tier, Noise>>): DemonstrationItem[] {
  const stream = demonstrationStream(seed, noise);
  return Array.from({ length: count }, () => stream.next().value);
}

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

async function passes({ instance, commands, harness }: DemonstrationItem): Promise<boolean> {
  const test = renderTask({ suite: 'test', id: 'test', identity: '', instance }).get('tests/test.sh') ?? '';
  const task: Task = {
    id: 'test',
    dir: '',
    instruction: instance.instruction,
    family: instance.family,
    tier: instance.tier,
    workdir: '/app',
    agentTimeoutSec: 60,
    verifierTimeoutSec: 60,
    verifierEnv: {},
    solutionEnv: {},
    environment: {
      image: SHELL_IMAGE,
      simple: true,
      env: {},
      files: new Map(Object.entries(instance.files).map(([path, text]) => [`app/${path}`, { data: bytes(text), mode: 0o644 }])),
      run: [],
      buildTimeoutSec: 600,
      memoryMb: 256,
      pidsLimit: 64,
      network: { mode: 'none' },
      needs: [],
    },
    tests: new Map([['test.sh', { data: bytes(test), mode: 0o755 }]]),
    checksum: '',
  };
  const provider = new EmbeddedProvider();
  const episode = { episodeId: 'demonstration', suite: 'test', task, provider, runKey: 'test', sample: 0, seed: 0, contextLength: 1 };
  const limits = { maxTurns: 20, maxTokensPerTurn: 100, observationTokens: 100, commandTimeoutSec: 10 };
  const { snapshot } = await runCommands({ ...episode, agent: 'replay', harness, limits, commands: commands.slice(0, -1) });
  const verdict = await verify({ task, snapshot, provider, labels: { runKey: 'test', episodeId: 'demonstration', purpose: 'check' } });
  return verdict.outcome === 'passed';
}

test('without noise every demonstration passes', async () => {
  for (const item of take(2 * TRAINED.length, 1, CLEAN))
    assert.ok(await passes(item), `${item.instance.instruction} ${item.commands.join(' ; ')}`);
});

test('with the default noise success falls over the tiers, to a quarter up to two fifths overall', async () => {
  const tally = new Map<Tier, { passed: number; all: number }>(TIERS.map((tier) => [tier, { passed: 0, all: 0 }]));
  for (const item of take(8 * TRAINED.length, 2, DEFAULT_NOISE)) {
    const count = tally.get(item.tier) ?? { passed: 0, all: 0 };
    count.all++;
    if (await passes(item)) count.passed++;
  }
  const share = (tier: Tier): number => (tally.get(tier)?.passed ?? 0) / (tally.get(tier)?.all ?? 1);
  const passed = [...tally.values()].reduce((sum, count) => sum + count.passed, 0);
  const overall = passed / (8 * TRAINED.length);
  const report = [...TIERS.map((tier) => `${tier} ${(100 * share(tier)).toFixed(1)}`), `overall ${(100 * overall).toFixed(1)}`].join(', ');
  console.log(`strict success of noisy demonstrations, %: ${report}`);
  assert.ok(share('easy') > share('hard') && share('medium') > share('hard') && share('hard') > share('extreme'), report);
  assert.ok(overall >= 0.25 && overall <= 0.42, report);
});

test('demonstrations are of trained families only, each equally often, and equal no task of any suite or of train', () => {
  const { identities } = allTasks();
  const heldOut = new Set(HELD_OUT.map((family) => family.name));
  const items = take(20 * TRAINED.length, 3, DEFAULT_NOISE);
  for (const { family, instance } of items) {
    assert.ok(!heldOut.has(family), family);
    assert.ok(!identities.has(identity(instance)), instance.instruction);
  }
  for (const family of TRAINED) assert.equal(items.filter((item) => item.family === family.name).length, 20);
});

test('the stream depends on its seed alone', () => {
  assert.deepEqual(take(50, 4, DEFAULT_NOISE), take(50, 4, DEFAULT_NOISE));
  assert.notDeepEqual(take(50, 4, DEFAULT_NOISE), take(50, 5, DEFAULT_NOISE));
});

test('a demonstration ends with exit, and only there', () => {
  for (const { commands, turns } of take(200, 6, DEFAULT_NOISE)) {
    assert.equal(commands.indexOf('exit'), commands.length - 1);
    assert.deepEqual(turns.flat(), commands);
  }
});

test('in the script harness a turn ends where something has to be read first', () => {
  const steps = [
    { right: ['one'], wrong: [] },
    { looks: ['look'], right: ['two'], wrong: [] },
  ];
  assert.deepEqual(demonstration({ steps }, new Random(1), NO_NOISE, 'script').turns, [
    ['one', 'look'],
    ['two', 'exit'],
  ]);
  assert.deepEqual(demonstration({ steps }, new Random(1), NO_NOISE, 'shell').turns, [['one'], ['look'], ['two'], ['exit']]);
});
