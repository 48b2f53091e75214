/** Tasks that leave their workdir to the image: it is where the agent works, what is kept, and where the tests run. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import Docker from 'dockerode';
import { pack } from 'tar-stream';
import { finished, SHELL_IMAGE } from '../docker/shell-image.ts';
import { runOracle } from '../harness/harness.ts';
import { backends, testRunKey } from '../testing.ts';
import { verify } from '../verifier/verifier.ts';
import { loadTask } from './task.ts';
import { taskFolder, type TaskFiles } from './testing.ts';
import { located, withImageWorkdir } from './workdir.ts';

const { write } = await taskFolder();
const [embedded, docker] = await backends();
assert.ok(embedded && docker);
const toml = '[environment]\ndocker_image = "terminal-rsi/test-workdir:1"\n';

describe('a workdir that the image names', () => {
  it('is asked for where neither task.toml nor the Dockerfile names one', async () => {
    const open = async (files: TaskFiles): Promise<unknown> => (await loadTask(await write(files))).environment.imageWorkdir;
    assert.deepEqual(
      [
        await open({}),
        await open({ 'environment/Dockerfile': 'FROM x\nUSER u\nWORKDIR $UNKNOWN\n' }),
        await open({ 'environment/Dockerfile': 'FROM x\nWORKDIR /w\n' }),
        await open({ 'task.toml': '[environment]\nworkdir = "/w"\n' }),
        await open({ 'environment/Dockerfile': `FROM ${SHELL_IMAGE}\n` }),
      ],
      [true, true, undefined, undefined, undefined],
    );
  });

  it('moves the files that lie in it, and is /app where the image names none', async () => {
    const task = await loadTask(await write({ 'task.toml': toml, 'environment/Dockerfile': undefined, 'environment/a/b': '' }));
    const moved = withImageWorkdir(task, '/srv/here');
    assert.deepEqual([moved.workdir, [...moved.environment.files.keys()]], ['/srv/here', ['srv/here/a/b']]);
    for (const none of ['', '/', 'relative']) assert.equal(withImageWorkdir(task, none).workdir, '/app');
    assert.equal(await located(embedded.provider(), task), task);
  });

  it('is where the agent works and the tests run', { skip: docker.skip }, async () => {
    const engine = new Docker();
    const context = pack();
    context.entry({ name: 'Dockerfile' }, `FROM ${SHELL_IMAGE}\nWORKDIR /srv/here\n`);
    context.finalize();
    // A tar-stream is a stream in all but its type.
    await finished(engine, await engine.buildImage(context as unknown as NodeJS.ReadableStream, { t: 'terminal-rsi/test-workdir:1' }));
    const provider = docker.provider();
    try {
      const task = await loadTask(
        await write({
          'task.toml': toml,
          'environment/Dockerfile': undefined,
          'environment/given': 'g',
          'solution/solve.sh': '#!/bin/bash\npwd > where && cat given >> where\n',
          'tests/test.sh': '#!/bin/bash\n[ "$PWD $(cat where)" = "/srv/here /srv/here\ng" ] && echo 1 > /logs/verifier/reward.txt\n',
        }),
      );
      const episode = { episodeId: 'workdir', suite: 'test', task, provider, runKey: testRunKey };
      const { snapshot } = await runOracle(episode);
      assert.deepEqual(Object.keys(snapshot.files).sort(), ['given', 'where']);
      const verdict = await verify({ task, snapshot, provider, labels: { runKey: testRunKey, episodeId: 'workdir', purpose: 'verify' } });
      assert.equal(verdict.outcome, 'passed', JSON.stringify(verdict));
    } finally {
      await provider.close();
      await engine.getImage('terminal-rsi/test-workdir:1').remove({ force: true });
    }
  });
});
