/** Where a task is verified: in its own environment, in a fresh copy of it, or in an image of the verifier's own. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Task } from '../types.ts';
import { loadTask } from './task.ts';
import { taskFolder, type TaskFiles } from './testing.ts';

const { write, refused } = await taskFolder();
const load = async (files: TaskFiles): Promise<Task> => loadTask(await write(files));

describe('the verifier of a task', () => {
  it('is shared unless the task says otherwise', async () => {
    const { verifierMode, verifierEnvironment, verifierWorkdir } = await load({ 'tests/Dockerfile': 'FROM y\n' });
    assert.deepEqual([verifierMode, verifierEnvironment, verifierWorkdir], [undefined, undefined, undefined]);
    assert.equal((await load({ 'task.toml': '[verifier]\nenvironment_mode = "shared"' })).verifierMode, 'shared');
  });

  it("is a copy of the task's environment where it is separate without one of its own", async () => {
    const task = await load({ 'task.toml': '[verifier]\nenvironment_mode = "separate"' });
    assert.deepEqual([task.verifierMode, task.verifierEnvironment, task.tests.size], ['separate', undefined, 1]);
  });

  it('takes the settings of [verifier.environment] and the image of the task', async () => {
    const task = await load({
      'task.toml':
        '[environment]\ncpus = 4\nmemory_mb = 100\n[verifier.environment]\nmemory_mb = 64\nnetwork_mode = "public"\nworkdir = "/v"',
    });
    const spec = task.verifierEnvironment;
    assert.deepEqual([spec?.image, spec?.memoryMb, spec?.cpus, spec?.network], ['some/image', 64, undefined, { mode: 'public' }]);
    assert.deepEqual([task.verifierMode, task.verifierWorkdir, task.tests.size], ['separate', '/v', 1]);
  });

  it('is an image that brings the tests, named in task.toml', async () => {
    const task = await load({
      'task.toml': '[verifier.environment]\ndocker_image = "judge:1"',
      'tests/test.sh': undefined,
      'tests/Dockerfile': 'FROM y\n',
    });
    assert.deepEqual([task.verifierEnvironment?.image, task.verifierEnvironment?.build, task.tests.size], ['judge:1', undefined, 0]);
    assert.equal(task.verifierWorkdir, '/app');
  });

  it('is an image built from tests/, which brings the tests', async () => {
    const task = await load({
      'task.toml': '[environment]\ndocker_image = "agent:1"\n[verifier]\nenvironment_mode = "separate"',
      'tests/Dockerfile': 'FROM judge\nWORKDIR /judge\nCOPY . /tests\n',
    });
    assert.deepEqual([task.environment.image, task.verifierEnvironment?.image, task.verifierWorkdir], ['agent:1', 'judge', '/judge']);
    assert.deepEqual([...(task.verifierEnvironment?.build?.context.keys() ?? [])], ['Dockerfile', 'test.sh']);
    assert.equal(task.tests.size, 0);
    await refused(
      { 'task.toml': '[verifier]\nenvironment_mode = "separate"', 'tests/docker-compose.yaml': '' },
      /tests\/docker-compose\.yaml: compose environments are not supported/,
    );
  });
});
