import assert from 'node:assert/strict';
import { test } from 'node:test';
import { minimizeCommands } from './minimize.ts';
import { Random } from './seeds.ts';

/** Passes if the wanted commands occur in this order. */
const ordered =
  (...wanted: string[]) =>
  (candidate: readonly string[]): Promise<boolean> => {
    let at = 0;
    for (const command of candidate) if (command === wanted[at]) at += 1;
    return Promise.resolve(at === wanted.length);
  };

test('keeps exactly the commands that the outcome needs, in order', async () => {
  const commands = ['ls', 'cat a', 'mkdir out', 'ls out', 'pwd', 'cp a out/a', 'cat out/a'];
  const result = await minimizeCommands(commands, ordered('mkdir out', 'cp a out/a'), 100);
  assert.deepEqual(result.commands, ['mkdir out', 'cp a out/a']);
  assert.equal(result.complete, true);
});

test('a list that does not pass again is not minimised', async () => {
  const result = await minimizeCommands(['ls'], () => Promise.resolve(false), 100);
  assert.deepEqual(result, { executions: 1, complete: true });
});

test('a task that passes without any command gives the empty list', async () => {
  const result = await minimizeCommands(['ls', 'pwd'], () => Promise.resolve(true), 100);
  assert.deepEqual(result.commands, []);
});

test('one command that is needed stays', async () => {
  const result = await minimizeCommands(['touch a'], ordered('touch a'), 100);
  assert.deepEqual(result.commands, ['touch a']);
});

test('the bound is kept, and what is returned then still passes', async () => {
  const commands = Array.from({ length: 32 }, (_, i) => `c${i}`);
  let calls = 0;
  const passes = (candidate: readonly string[]): Promise<boolean> => {
    calls += 1;
    return ordered('c3', 'c17', 'c30')(candidate);
  };
  const result = await minimizeCommands(commands, passes, 7);
  assert.equal(result.complete, false);
  assert.ok(calls <= 7 && result.executions === calls);
  assert.equal(await ordered('c3', 'c17', 'c30')(result.commands ?? []), true);
});

test('random needs, also non-monotone ones: the result passes, is 1-minimal, and no list is executed twice', async () => {
  const random = new Random(31);
  for (let trial = 0; trial < 60; trial++) {
    const commands = Array.from({ length: 1 + random.int(10) }, (_, i) => `c${i}`);
    const needed = commands.filter(() => random.chance(0.4));
    // A command that breaks the outcome unless another repairs it makes the oracle non-monotone.
    const [breaks, repairs] = [random.pick(commands), random.pick(commands)];
    const wants = (candidate: readonly string[]): boolean =>
      needed.every((command) => candidate.includes(command)) && (!candidate.includes(breaks) || candidate.includes(repairs));
    const executed: string[] = [];
    const passes = (candidate: readonly string[]): Promise<boolean> => {
      executed.push(JSON.stringify(candidate));
      return Promise.resolve(wants(candidate));
    };
    const result = await minimizeCommands(commands, passes, 1000);
    assert.equal(new Set(executed).size, executed.length);
    if (!wants(commands)) {
      assert.equal(result.commands, undefined);
      continue;
    }
    const kept = result.commands ?? [];
    assert.ok(wants(kept));
    kept.forEach((_, skip) => assert.ok(!wants(kept.filter((_command, index) => index !== skip)), `${kept.join()} without ${kept[skip]}`));
  }
});

test('the same input takes the same path', async () => {
  const run = (): Promise<unknown> => minimizeCommands(['a', 'b', 'c', 'd', 'e'], ordered('b', 'e'), 50);
  assert.deepEqual(await run(), await run());
});
