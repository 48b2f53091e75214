/** The splits, the shape of the tasks, and their rendering; what the tasks do is tested in tasks.test.ts. */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { loadTask } from '../environment/tasks/task.ts';
import { Random, deriveSeed } from '../method/seeds.ts';
import { DIGESTS, buildSuites, digests, renderedTasks } from './build.ts';
import { identity } from './family.ts';
import { FAMILIES, HELD_OUT, LONG_HORIZON, TRAINED } from './families/index.ts';
import { NOUNS } from './families/vocabulary.ts';
import { TRAIN, allTasks } from './splits.ts';
import { listSuites, listTraining, suiteDirectory } from './suites.ts';

test('six suites and dev have their sizes, metrics and roles', () => {
  assert.deepEqual(
    listSuites().map(({ name, metric, headline, tasks }) => [name, metric, headline, tasks.length]),
    [
      ['core', 'strict', true, 24],
      ['broad', 'strict', true, 24],
      ['transfer', 'strict', true, 18],
      ['hard', 'strict', true, 20],
      ['long-horizon', 'process', false, 12],
      ['workflow-rebuild', 'strict', false, 12],
      ['dev', 'strict', false, 32],
    ],
  );
  const tiers = (name: string): string[] =>
    [
      ...new Set(
        listSuites()
          .find((suite) => suite.name === name)
          ?.tasks.map((task) => task.tier),
      ),
    ].sort();
  assert.deepEqual(tiers('core'), ['easy', 'medium']);
  assert.deepEqual(tiers('broad'), ['hard', 'medium']);
  assert.deepEqual(tiers('hard'), ['extreme', 'hard']);
});

test('training has eight tasks of every trained family', () => {
  for (const family of TRAINED) assert.equal(listTraining().filter((task) => task.family === family.name).length, 8, family.name);
  assert.equal(listTraining().length, 8 * TRAINED.length);
});

test('there are at least 20 trained and 3 held-out families over four tiers, with unique names', () => {
  assert.ok(TRAINED.length >= 20 && HELD_OUT.length >= 3);
  assert.deepEqual([...new Set(TRAINED.map((family) => family.tier))].sort(), ['easy', 'extreme', 'hard', 'medium']);
  assert.equal(new Set(FAMILIES.map((family) => family.name)).size, FAMILIES.length);
});

test('held-out families occur in transfer only', () => {
  const heldOut = new Set(HELD_OUT.map((family) => family.name));
  for (const { suite, instance } of allTasks().tasks)
    assert.equal(heldOut.has(instance.family), suite === 'transfer', `${suite} ${instance.family}`);
});

test('no task occurs twice, in whatever suite', () => {
  const { tasks, identities } = allTasks();
  assert.equal(identities.size, tasks.length);
  assert.equal(new Set(tasks.map((task) => identity(task.instance))).size, tasks.length);
  assert.equal(new Set(tasks.map((task) => `${task.suite}/${task.id}`)).size, tasks.length);
});

test('every family has thousands of instances', () => {
  for (const family of FAMILIES) {
    const seen = new Set(Array.from({ length: 300 }, (_, i) => identity(family.generate(new Random(deriveSeed('count', family.name, i))))));
    // 300 draws from N equally likely instances give about 300²/2N repetitions: at most 10 means thousands.
    assert.ok(seen.size >= 290, `${family.name}: ${seen.size} different instances in 300 draws`);
  }
});

test('the tier of every task is the one its structure gives, and that of its family', () => {
  for (const family of FAMILIES) {
    for (let i = 0; i < 20; i++) assert.equal(family.generate(new Random(i)).tier, family.tier, family.name);
  }
});

test('instructions, commands and checks keep to the limits of a tiny policy', () => {
  const longHorizon = new Set<string>(LONG_HORIZON);
  for (const { suite, id, instance } of allTasks().tasks) {
    const place = `${suite}/${id}`;
    const words = instance.instruction.split(' ').length;
    assert.ok(words <= (longHorizon.has(instance.family) ? 75 : 45), `${place}: ${words} words`);
    for (const command of instance.solution) assert.ok(command.length <= 60, `${place}: ${command}`);
    assert.ok(instance.checks.length >= 3 && instance.checks.length <= 8, `${place}: ${instance.checks.length} checks`);
    assert.ok(instance.checks.filter((check) => check.guard === undefined).length >= 3, `${place}: fewer than 3 valid checks`);
    assert.equal(new Set(instance.checks.map((check) => check.name)).size, instance.checks.length, `${place}: names of checks`);
    for (const check of instance.checks) assert.match(check.name, /^[a-z0-9-]+$/);
  }
});

test('names and values in solutions stand in the instruction or in a file', () => {
  for (const { suite, id, instance } of allTasks().tasks) {
    const visible = `${instance.instruction} ${Object.entries(instance.files).flat().join(' ')}`;
    for (const noun of NOUNS) {
      if (instance.solution.some((command) => command.includes(noun))) assert.ok(visible.includes(noun), `${suite}/${id}: ${noun}`);
    }
  }
});

test('no noun is part of another', () => {
  for (const noun of NOUNS)
    assert.deepEqual(
      NOUNS.filter((other) => other.includes(noun)),
      [noun],
    );
});

test('the generators still make what digests.json says (after a wanted change: node --import tsx suites/build.ts --update)', () => {
  assert.deepEqual(digests(), JSON.parse(readFileSync(DIGESTS, 'utf8')));
});

test('the loader reads every task as it was meant, with the same checksum', async () => {
  listSuites();
  for (const { suite, id, instance, checksum } of renderedTasks()) {
    const warnings: string[] = [];
    const task = await loadTask(join(suiteDirectory(suite), id), { warn: (message) => warnings.push(message) });
    assert.equal(task.checksum, checksum);
    assert.equal(task.instruction, instance.instruction);
    assert.equal(task.family, instance.family);
    assert.equal(task.tier, instance.tier);
    assert.deepEqual(
      [...task.environment.files.keys()].sort(),
      Object.keys(instance.files)
        .map((path) => `app/${path}`)
        .sort(),
    );
    assert.deepEqual(warnings, []);
  }
});

test('a build is skipped when up to date, and repaired when it is not', () => {
  const directory = join(mkdtempSync(join(tmpdir(), 'suites-')), 'built');
  try {
    assert.equal(buildSuites(directory), renderedTasks().length);
    assert.equal(buildSuites(directory), 0);
    rmSync(join(directory, 'index.json'));
    assert.equal(buildSuites(directory), renderedTasks().length);
  } finally {
    rmSync(join(directory, '..'), { recursive: true, force: true });
  }
});

test('an unknown suite is refused with the names there are', () => {
  assert.throws(() => suiteDirectory('corr'), { name: 'UserError', message: /"corr".*expected one of core, .*, train/ });
  assert.ok(suiteDirectory(TRAIN).endsWith('train'));
});
