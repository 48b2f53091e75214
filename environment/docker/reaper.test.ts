/** What the reaper takes and what it leaves, by labels alone; and what is left of a worker that was killed. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { after, describe, it } from 'node:test';
import Docker from 'dockerode';
import { identify } from '../../workers/process-identity.ts';
import { backends, countContainers, testRunKey } from '../testing.ts';
import { SHELL_IMAGE } from './shell-image.ts';
import { BridgeNetworks } from './networks.ts';
import { Reaper } from './reaper.ts';
import type { WorkflowRef } from './reaper.ts';

const [, backend] = await backends();
const docker = new Docker();
const runKey = `${testRunKey}-reaper`;
const self = identify(process.pid);
const here = { living: JSON.stringify(self), dead: JSON.stringify({ ...self, start: '1' }) };
const elsewhere = JSON.stringify({ ...self, host: 'another machine' });
const now = Math.floor(Date.now() / 1000);
const [over, ahead] = [String(now - 10), String(now + 3600)];

async function leave(labels: Record<string, string>): Promise<string> {
  const named = Object.fromEntries(Object.entries(labels).map(([name, value]) => [`terminal-rsi.${name}`, value]));
  const { id } = await docker.createContainer({
    Image: SHELL_IMAGE,
    Cmd: ['sleep', '600'],
    Labels: { 'terminal-rsi.run': runKey, ...named },
    HostConfig: { NetworkMode: 'none' },
  });
  return id;
}
const left = async (run = runKey): Promise<string[]> =>
  (await docker.listContainers({ all: true, filters: { label: [`terminal-rsi.run=${run}`] } })).map(({ Id }) => Id);
const isOpen = ({ workflowId }: WorkflowRef): Promise<boolean | undefined> => {
  if (workflowId === 'silent') return Promise.reject(new Error('Temporal does not answer'));
  return Promise.resolve({ open: true, closed: false }[workflowId]);
};

describe('the reaper', { skip: backend?.skip ?? false }, () => {
  after(async () => {
    await Promise.all((await left()).map((id) => docker.getContainer(id).remove({ force: true })));
  });

  it('knows owners from labels alone, takes what is nobody’s and never what may live (failure 3)', async () => {
    const cases: readonly (readonly [string, Record<string, string>, 'taken' | 'kept'])[] = [
      ['a living process here', { owner: here.living, lease: over, workflow: 'closed 1' }, 'kept'],
      ['a dead process here', { owner: here.dead, lease: ahead, workflow: 'open 1' }, 'taken'],
      ['elsewhere, workflow open', { owner: elsewhere, lease: over, workflow: 'open 1' }, 'kept'],
      ['elsewhere, workflow closed', { owner: elsewhere, lease: ahead, workflow: 'closed 1' }, 'taken'],
      ['elsewhere, workflow unknown, lease ahead', { owner: elsewhere, lease: ahead, workflow: 'unknown 1' }, 'kept'],
      ['elsewhere, workflow unknown, lease over', { owner: elsewhere, lease: over, workflow: 'unknown 1' }, 'taken'],
      ['elsewhere, Temporal silent, lease ahead', { owner: elsewhere, lease: ahead, workflow: 'silent 1' }, 'kept'],
      ['elsewhere, no workflow, lease ahead', { owner: elsewhere, lease: ahead }, 'kept'],
      ['elsewhere, no workflow, lease over', { owner: elsewhere, lease: over }, 'taken'],
      ['no owner, no lease', {}, 'kept'],
      ['an owner that cannot be read, lease over', { owner: '{', lease: over }, 'taken'],
    ];
    const ids: string[] = [];
    for (const [, labels] of cases) ids.push(await leave(labels));
    const logged: string[] = [];
    const logger = {
      info: (details: object) => logged.push((details as { reason?: string }).reason ?? ''),
      warn: (details: object, message: string) => assert.fail(`${message}: ${JSON.stringify(details)}`),
    };
    const reaper = new Reaper(docker, { isOpen, logger });
    // A round asked for during a round is that one.
    const [first, second] = await Promise.all([reaper.reapOnce(), reaper.reapOnce()]);
    assert.equal(first, second);
    const remaining = await left();
    assert.deepEqual(
      cases.map(([name], index) => [name, remaining.includes(ids[index] ?? '') ? 'kept' : 'taken']),
      cases.map(([name, , expected]) => [name, expected]),
    );
    // The others may have gone by the reaper of another process that is at work on this machine: it knows no workflows.
    assert.ok(logged.includes('its workflow closed is closed'), logged.join(', '));
  });

  it('takes what this process closed and could not remove', async () => {
    const [working, closed] = [await leave({ owner: here.living }), await leave({ owner: here.living })];
    const { Name: name } = await docker.getContainer(working).inspect();
    await new Reaper(docker, { isOpen, isHeld: (held) => `/${held}` === name }).reapOnce();
    const remaining = await left();
    assert.deepEqual([remaining.includes(working), remaining.includes(closed)], [true, false]);
  });

  it('goes round on a timer until it is stopped', async () => {
    let rounds = 0;
    const reaper = new Reaper(docker, { isOpen, networks: { sweep: () => Promise.resolve(++rounds && 0) } });
    reaper.start(50);
    const id = await leave({ owner: here.dead });
    while (rounds < 2 || (await left()).includes(id)) await new Promise((resolve) => setTimeout(resolve, 20));
    await reaper.stop();
    const before = rounds;
    await new Promise((resolve) => setTimeout(resolve, 150));
    assert.equal(rounds, before);
  });

  it('takes the containers and networks of a worker that was killed (failure 2)', async () => {
    const subnet = `10.214.${64 + (process.pid % 64)}.0/28`;
    const killed = `${runKey}-killed`;
    const program = `
      const { DockerProvider } = await import('./environment/docker/provider.ts');
      const { fixture } = await import('./environment/testing.ts');
      const task = await fixture('sort-names');
      const provider = new DockerProvider({ subnets: '${subnet}' });
      for (const [index, mode] of ['none', 'public'].entries())
        await provider.start({ ...task, environment: { ...task.environment, run: [], network: { mode } } }, { runKey: '${killed}', episodeId: String(index), purpose: 'rollout' });
      console.log('started');
      setInterval(() => undefined, 1000);`;
    const root = new URL('../..', import.meta.url);
    const worker = spawn(process.execPath, ['--import', 'tsx', '--input-type=module', '-e', program], {
      cwd: root,
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const ended = once(worker, 'exit');
    await Promise.race([once(worker.stdout, 'data'), ended.then(() => assert.fail('the worker ended before it was killed'))]);
    assert.equal(await countContainers(killed), 2);
    const networks = new BridgeNetworks(docker, subnet);
    const reaper = new Reaper(docker, { isOpen, networks: { sweep: () => networks.sweep({ restMs: 0 }) } });
    await reaper.reapOnce();
    assert.equal(await countContainers(killed), 2, 'its worker lives');
    worker.kill('SIGKILL');
    await ended;
    await reaper.reapOnce();
    assert.equal(await countContainers(killed), 0);
    const name = `terminal-rsi-public-${subnet.replace('/', '-')}`;
    assert.deepEqual(await docker.listNetworks({ filters: { name: [name] } }), []);
  });
});
