/** Tasks of several steps: what a step takes from the task, and a step as a task of its own. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { FileTree, Task, TaskStep } from '../types.ts';
import { loadTask, stepTask } from './task.ts';
import { taskFolder, type TaskFiles } from './testing.ts';

const { write, refused } = await taskFolder();
const text = (tree: FileTree | undefined, path: string): string => Buffer.from(tree?.get(path)?.data ?? '').toString();

const toml = `
artifacts = ["shared.txt"]
multi_step_reward_strategy = "final"
[task]
name = "org/steps"
[agent]
timeout_sec = 100
user = "agent"
network_mode = "no-network"
[verifier]
timeout_sec = 50
user = "root"
env = { A = "task", B = "task" }
[[verifier.collect]]
command = "both"
[solution]
env = { S = "s" }
[environment.healthcheck]
command = "task"
[[steps]]
name = "first"
min_reward = 0.5
[[steps]]
name = "second one"
artifacts = ["own.txt"]
min_reward = { reward = 1, speed = 0.5 }
[steps.agent]
timeout_sec = 7
user = 1001
network_mode = "public"
[steps.verifier]
timeout_sec = 8
user = "judge"
env = { B = "step" }
[[steps.verifier.collect]]
command = "own"
[steps.healthcheck]
command = "step"
`;
const files: TaskFiles = {
  'task.toml': toml,
  'instruction.md': undefined,
  'tests/test.sh': 'shared test',
  'tests/common': 'shared',
  'tests/data': 'shared',
  'solution/solve.sh': 'shared solution',
  'steps/first/instruction.md': '<!-- canary -->\n\nBegin.',
  'steps/second one/instruction.md': 'Go on.',
  'steps/second one/tests/test.sh': 'own test',
  'steps/second one/tests/data': 'own',
  'steps/second one/tests/.harborignore': 'secret',
  'steps/second one/tests/secret': '',
  'steps/second one/solution/solve.sh': 'own solution',
  'steps/second one/workdir/setup.sh': 'setup',
  'steps/second one/workdir/in/file': 'f',
};
async function load(): Promise<{ task: Task; first: TaskStep; second: TaskStep }> {
  const task = await loadTask(await write(files));
  const [first, second] = task.steps ?? [];
  assert.ok(first && second);
  return { task, first, second };
}

describe('a task of several steps', () => {
  it('reads each step: its own settings, else those of the task', async () => {
    const { task, first, second } = await load();
    assert.deepEqual([task.steps?.length, task.rewardStrategy], [2, 'final']);
    assert.deepEqual(
      [first, second].map((step) => [step.name, step.instruction, step.agentTimeoutSec, step.agentUser, step.agentNetwork, step.minReward]),
      [
        ['first', 'Begin.', 100, 'agent', { mode: 'none' }, 0.5],
        ['second one', 'Go on.', 7, '1001', { mode: 'public' }, { reward: 1, speed: 0.5 }],
      ],
    );
    assert.deepEqual(
      [first, second].map((step) => [step.verifierUser, step.verifierEnv, step.solutionEnv]),
      [
        ['root', { A: 'task', B: 'task' }, { S: 's' }],
        ['judge', { A: 'task', B: 'step' }, { S: 's' }],
      ],
    );
    // Harbor's default, not the task's value.
    assert.deepEqual([first.verifierTimeoutSec, second.verifierTimeoutSec], [600, 8]);
  });

  it("adds the step's hooks and artifacts to the task's", async () => {
    const { first, second } = await load();
    const names = (step: TaskStep): unknown => [step.collect?.map(({ command }) => command), step.artifacts?.map(({ source }) => source)];
    assert.deepEqual([first, second].map(names), [
      [['both'], ['shared.txt']],
      [
        ['both', 'own'],
        ['shared.txt', 'own.txt'],
      ],
    ]);
  });

  it("lays the step's tests over the shared ones, and takes its solution in place of the shared one", async () => {
    const { first, second } = await load();
    assert.deepEqual([...first.tests.keys()], ['common', 'data', 'test.sh']);
    assert.deepEqual([...second.tests.keys()], ['common', 'data', 'test.sh']);
    assert.deepEqual(
      [first, second].map((step) => [text(step.tests, 'test.sh'), text(step.tests, 'data'), text(step.solution, 'solve.sh')]),
      [
        ['shared test', 'shared', 'shared solution'],
        ['own test', 'own', 'own solution'],
      ],
    );
    assert.deepEqual([first.workdirFiles.size, [...second.workdirFiles.keys()]], [0, ['in/file', 'setup.sh']]);
  });

  it('keeps the health check of the environment apart from those of the steps', async () => {
    const { task, first, second } = await load();
    assert.deepEqual(
      [task, first, second].map(({ healthcheck }) => healthcheck?.command),
      ['task', undefined, 'step'],
    );
  });

  it('gives a step as a task of its own, with nothing of the other steps', async () => {
    const { task, first, second } = await load();
    const own = stepTask(task, second);
    assert.deepEqual([own.id, own.name, own.checksum, own.workdir], [task.id, 'org/steps', task.checksum, '/app']);
    assert.equal(own.environment, task.environment);
    assert.deepEqual([own.instruction, own.steps, own.rewardStrategy], ['Go on.', undefined, undefined]);
    for (const key of ['steps', 'rewardStrategy', 'workdirFiles', 'minReward']) assert.ok(!(key in own), key);
    assert.ok(!('healthcheck' in stepTask({ ...task }, first)));
    assert.equal(task.instruction, first.instruction);
  });

  it('means several verdicts where the task names no strategy', async () => {
    const task = await loadTask(await write({ ...files, 'task.toml': '[[steps]]\nname = "first"\n' }));
    assert.equal(task.rewardStrategy, 'mean');
    assert.ok(!('steps' in (await loadTask(await write({ 'task.toml': 'steps = []' })))));
  });

  it("has a verifier of its own for a step: the step's table, else the task's", async () => {
    const task = await loadTask(
      await write({
        ...files,
        'task.toml':
          '[verifier.environment]\ndocker_image = "judge"\n[[steps]]\nname = "first"\n[[steps]]\nname = "second one"\n[steps.verifier]\nenvironment_mode = "shared"',
      }),
    );
    assert.deepEqual(
      task.steps?.map((step) => [step.verifierMode, step.verifierEnvironment?.image, step.tests.size > 0]),
      [
        ['separate', 'judge', false],
        ['shared', undefined, true],
      ],
    );
  });

  it('refuses steps without instruction or test, with prior context, or with names that some systems confuse', async () => {
    const one = '[[steps]]\nname = "one"\n';
    await refused({ 'task.toml': one }, /steps\/one\/instruction\.md: missing/);
    await refused({ 'task.toml': one, 'steps/one/instruction.md': '', 'tests/test.sh': undefined }, /steps\/one\/tests\/test\.sh: missing/);
    await refused(
      { 'task.toml': one, 'steps/one/instruction.md': '', 'steps/one/trajectory.json': '{}' },
      /steps\/one\/trajectory\.json: prior context is not supported/,
    );
    await refused({ 'task.toml': `${one}[[steps]]\nname = "ONE"\n` }, /steps\.1\.name = "ONE": expected names that differ/);
    await refused(
      { 'task.toml': '[[steps]]\nname = "con.txt"\n' },
      /steps\.0\.name = "con\.txt": expected another name than that of a Windows/,
    );
    await refused({ 'task.toml': '[[steps]]\nname = "a/b"\n' }, /steps\.0\.name = "a\/b": expected a portable directory name/);
  });
});
