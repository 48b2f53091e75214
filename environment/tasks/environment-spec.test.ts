/** What a sandbox starts from: simple environments, builds, published images, limits and networks. */
import assert from 'node:assert/strict';
import { chmod } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { loadTask } from './task.ts';
import { taskFolder } from './testing.ts';

const { write } = await taskFolder();

describe('the environment of a task', () => {
  it('gives an image of its own more room than the shell image', async () => {
    const limits = async (image: string): Promise<number[]> => {
      const { memoryMb, pidsLimit } = (await loadTask(await write({ 'environment/Dockerfile': `FROM ${image}\n` }))).environment;
      return [memoryMb, pidsLimit];
    };
    assert.deepEqual(await limits('terminal-rsi/shell:1'), [512, 256]);
    assert.deepEqual(await limits('debian:12'), [2048, 1024]);
  });

  it('gives a network only to what asks for one by name', async () => {
    const networks = async (toml: string): Promise<unknown> => {
      const { environment, agentNetwork, verifierNetwork } = await loadTask(await write({ 'task.toml': toml }));
      return [environment.network, agentNetwork, verifierNetwork];
    };
    assert.deepEqual(await networks(''), [{ mode: 'none' }, undefined, undefined]);
    assert.deepEqual(await networks('[environment]\nallow_internet = true'), [{ mode: 'public' }, undefined, undefined]);
    assert.deepEqual(
      await networks(
        '[environment]\nnetwork_mode = "public"\nallow_internet = false\n[agent]\nnetwork_mode = "no-network"\n[verifier]\nnetwork_mode = "allowlist"\nallowed_hosts = ["PyPI.org."]',
      ),
      [{ mode: 'public' }, { mode: 'none' }, { mode: 'allowlist', hosts: ['pypi.org'] }],
    );
  });

  it('builds what is more than files, variables and commands', async () => {
    const task = await loadTask(
      await write({
        'environment/Dockerfile': 'FROM debian:12 AS base\nENV PATH=/x:$PATH\nUSER me\nWORKDIR /home/me\n',
        'environment/a': 'a',
      }),
    );
    const { image, simple, notSimple, build, env, files, run } = task.environment;
    assert.deepEqual([image, simple, task.workdir], ['debian:12', false, '/home/me']);
    assert.match(notSimple ?? '', /environment\/Dockerfile:2: \$PATH; expected variables that ENV sets above/);
    assert.deepEqual([env, files.size, run], [{}, 0, []]);
    assert.deepEqual([...(build?.context.keys() ?? [])], ['Dockerfile', 'a']);
  });

  it('knows a build by its context: paths, modes and bytes', async () => {
    const hash = async (files: Record<string, string>, mode = 0o644): Promise<string | undefined> => {
      const directory = await write({ 'environment/run.sh': 'x', ...files });
      await chmod(join(directory, 'environment/run.sh'), mode);
      return (await loadTask(directory)).environment.build?.hash;
    };
    const first = await hash({});
    assert.match(first ?? '', /^[0-9a-f]{64}$/);
    assert.equal(await hash({ 'instruction.md': 'other', 'tests/x': '' }), first);
    const others = [await hash({ 'environment/run.sh': 'y' }), await hash({ 'environment/b': '' }), await hash({}, 0o755)];
    assert.equal(new Set([first, ...others]).size, 4);
  });

  it('keeps what .dockerignore names out of the build', async () => {
    const files = {
      'environment/.dockerignore': '# c\ndata\n*.log\n!keep.log\nDockerfile\n',
      'environment/data/x': '',
      'environment/sub/data': '',
    };
    const logs = { 'environment/a.log': '', 'environment/keep.log': '', 'environment/sub/b.log': '' };
    const { environment } = await loadTask(await write({ ...files, ...logs, 'environment/Dockerfile': 'FROM x\nCOPY . /all\n' }));
    const kept = ['.dockerignore', 'keep.log', 'sub/b.log', 'sub/data'];
    assert.deepEqual([...(environment.build?.context.keys() ?? [])], ['.dockerignore', 'Dockerfile', ...kept.slice(1)]);
    assert.deepEqual(
      [...environment.files.keys()],
      kept.map((path) => `all/${path}`),
    );
  });

  it('takes an image as it is, and puts files without a Dockerfile into the workdir', async () => {
    const toml = '[environment]\ndocker_image = "a/b:1"\nworkdir = "/w"\n';
    const withFiles = await loadTask(await write({ 'task.toml': toml, 'environment/Dockerfile': undefined, 'environment/d/x': 'x' }));
    assert.deepEqual([withFiles.environment.image, withFiles.environment.simple, withFiles.environment.build], ['a/b:1', true, undefined]);
    assert.deepEqual([...withFiles.environment.files.keys()], ['w/d/x']);
    const withDockerfile = await loadTask(await write({ 'task.toml': toml, 'environment/d/x': 'x' }));
    const published = {
      'task.toml': '[environment]\ndocker_image = "a/b:1"\n',
      'environment/Dockerfile': 'FROM x\nUSER u\nWORKDIR /opt/w\n',
    };
    assert.equal((await loadTask(await write(published))).workdir, '/opt/w');
    assert.equal((await loadTask(await write({ ...published, 'environment/Dockerfile': '# unused\n' }))).workdir, '/app');
    assert.deepEqual([withDockerfile.environment.image, withDockerfile.environment.files.size], ['a/b:1', 0]);
    const alone = await loadTask(await write({ 'task.toml': toml, 'environment/Dockerfile': undefined }));
    assert.equal(alone.environment.files.size, 0);
  });
});
