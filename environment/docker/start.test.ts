/** Starting containers on an engine that loses answers, refuses for a while or is slow; and removing them for good. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, describe, it } from 'node:test';
import Docker from 'dockerode';
import { startEngineProxy } from '../../tests/engine-proxy.ts';
import type { Fault } from '../../tests/engine-proxy.ts';
import { InfrastructureError } from '../errors.ts';
import { backends, countContainers, fixture, testRunKey } from '../testing.ts';
import type { Task } from '../types.ts';
import { remove } from './engine.ts';
import { removeImage } from './images.ts';
import { DockerProvider } from './provider.ts';

const [, backend] = await backends();
const docker = new Docker();
const { environment, ...rest } = await fixture('sort-names');
const bare = (changes: Partial<Task['environment']> = {}): Task => ({ ...rest, environment: { ...environment, run: [], ...changes } });
let number = 0;
const labels = () => ({ runKey: testRunKey, episodeId: `start-${number++}`, purpose: 'check' }) as const;

describe('starting a container', { skip: backend?.skip ?? false }, () => {
  const proxies: { close(): Promise<void> }[] = [];
  const engine = async (...faults: Fault[]) => {
    const proxy = await startEngineProxy();
    proxy.faults = faults;
    const provider = new DockerProvider({ docker: proxy.docker, answerMs: 1500 });
    proxies.push(provider, proxy);
    return { proxy, provider };
  };
  after(async () => {
    for (const each of proxies) await each.close();
    assert.equal(await countContainers(testRunKey), 0, 'containers left behind');
  });
  const create = /^POST \S*\/containers\/create/;
  const begin = /^POST \S*\/containers\/\w+\/start/;
  const runs = async (provider: DockerProvider): Promise<void> => {
    const of = labels();
    const sandbox = await provider.start(bare(), of);
    const found = await docker.listContainers({ all: true, filters: { label: [`terminal-rsi.episode=${of.episodeId}`] } });
    assert.deepEqual(
      found.map(({ State }) => State),
      ['running'],
    );
    assert.equal((await sandbox.exec('echo on', { timeoutSec: 10 })).stdout, 'on\n');
    await sandbox.close();
  };

  for (const [what, on] of [
    ['create', create],
    ['start', begin],
  ] as const) {
    it(`takes over the container when the answer to ${what} is lost (failure 21)`, async () => {
      const { proxy, provider } = await engine({ on, how: 'lose', times: 1 });
      await runs(provider);
      assert.equal(proxy.requests.filter((line) => on.test(line)).length, 1, 'asked for once: the first request did its work');
    });
  }

  it('takes over what a hanging engine made, and asks a refusing one again (failure 21)', async () => {
    const { proxy, provider } = await engine({ on: create, how: 'hang', times: 1 }, { on: begin, how: 'refuse', times: 2 });
    await runs(provider);
    assert.equal(proxy.requests.filter((line) => begin.test(line)).length, 3);
  });

  it('builds its image anew when somebody removed it meanwhile', async () => {
    const { proxy, provider } = await engine();
    const text = `FROM terminal-rsi/shell:1\nWORKDIR /app\nRUN echo ${testRunKey} > /made\n`;
    const build = { context: new Map([['Dockerfile', { data: Buffer.from(text), mode: 0o644 }]]), hash: text };
    const again = async (): Promise<string> => {
      const of = labels();
      const sandbox = await provider.start(bare({ simple: false, build }), of);
      const [found] = await docker.listContainers({ filters: { label: [`terminal-rsi.episode=${of.episodeId}`] } });
      await sandbox.close();
      return found?.Image ?? '';
    };
    const image = await again();
    assert.equal(await removeImage(docker, image), true);
    assert.equal(await again(), image);
    assert.equal(proxy.requests.filter((line) => /^POST \S*\/build/.test(line)).length, 2);
    await removeImage(docker, image);
  });

  it('gives up on an engine that refuses for good, and leaves nothing', async () => {
    const { provider } = await engine({ on: begin, how: 'refuse', times: 100 });
    const of = labels();
    await assert.rejects(
      provider.start(bare(), of),
      (error) => error instanceof InfrastructureError && /waiting for systemd/.test(error.message),
    );
    assert.equal((await docker.listContainers({ all: true, filters: { label: [`terminal-rsi.episode=${of.episodeId}`] } })).length, 0);
  });

  it('starts few at a time, however many are asked for (failure 21)', async () => {
    const proxy = await startEngineProxy();
    const [one, two] = [new DockerProvider({ docker: proxy.docker }), new DockerProvider({ docker: proxy.docker })];
    proxies.push(one, two, proxy);
    const sandboxes = await Promise.all(Array.from({ length: 8 }, (_, index) => (index % 2 === 0 ? one : two).start(bare(), labels())));
    const most = proxy.mostAtOnce(/^POST \S*\/containers\/(create|\w+\/start)/);
    assert.ok(most > 1 && most <= 4, `${most} at the same time`);
    await Promise.all(sandboxes.map((sandbox) => sandbox.close()));
  });

  it('has a time limit, which says so', async () => {
    const { provider } = await engine({ on: begin, how: 'hang', times: 100 });
    await assert.rejects(
      provider.start(bare({ buildTimeoutSec: 1 }), labels()),
      (error) => error instanceof InfrastructureError && error.type === 'EnvironmentStartTimeoutError' && /within 1 s/.test(error.message),
    );
  });

  it('removes an exited container with its volumes in one call, whoever else does too, and sees it gone (failure 4)', async () => {
    const container = await docker.createContainer({
      name: `terminal-rsi-test-${randomUUID()}`,
      Image: environment.image,
      Cmd: ['true'],
      Volumes: { '/volume': {} },
      Labels: { 'terminal-rsi.run': testRunKey },
      HostConfig: { NetworkMode: 'none' },
    });
    await container.start();
    await container.wait();
    const { Mounts: mounts } = await container.inspect();
    await Promise.all([remove(container), remove(container), remove(container)]);
    await assert.rejects(container.inspect(), { statusCode: 404 });
    await assert.rejects(docker.getVolume(mounts[0]?.Name ?? '').inspect(), { statusCode: 404 });
    await remove(container);
  });
});
