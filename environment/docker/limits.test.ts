/** What a container may use and do, as it sees it itself. */
import assert from 'node:assert/strict';
import { after, describe, it } from 'node:test';
import Docker from 'dockerode';
import { backends, countContainers, fixture, testRunKey } from '../testing.ts';
import type { Task } from '../types.ts';
import { removeImage } from './images.ts';
import { CAPABILITIES } from './limits.ts';
import { DockerProvider } from './provider.ts';

const [, backend] = await backends();
const docker = new Docker();
const { environment, ...rest } = await fixture('sort-names');
const text = 'FROM terminal-rsi/shell:1\nWORKDIR /app\nENV OWN=image\nUSER 1000:1000\n';
const ownImage: Task['environment'] = {
  ...environment,
  env: {},
  files: new Map(),
  run: [],
  simple: false,
  build: { context: new Map([['Dockerfile', { data: Buffer.from(text), mode: 0o644 }]]), hash: `limits ${text}` },
};
let number = 0;

describe('a container', { skip: backend?.skip ?? false }, () => {
  const provider = new DockerProvider({ docker });
  const built = new Set<string>();
  after(async () => {
    await provider.close();
    for (const name of built) await removeImage(docker, name);
    assert.equal(await countContainers(testRunKey), 0, 'containers left behind');
  });
  /** What its first process may do, and how it was made. */
  const made = async (task: Task) => {
    const episodeId = `limits-${number++}`;
    const sandbox = await provider.start(task, { runKey: testRunKey, episodeId, purpose: 'check' });
    try {
      const { stdout } = await sandbox.exec('grep -E "CapBnd|NoNewPrivs" /proc/1/status | tr -d "\\t"; ulimit -c', { timeoutSec: 10 });
      const [found] = await docker.listContainers({ filters: { label: [`terminal-rsi.episode=${episodeId}`] } });
      const { Config: config, HostConfig: host } = await docker.getContainer(found?.Id ?? '').inspect();
      if (config.Image.startsWith('terminal-rsi/env:')) built.add(config.Image);
      return { says: stdout, config, host };
    } finally {
      await sandbox.close();
    }
  };

  it('over the shell image has no capabilities, no core dumps, no log, and the limits of its task', async () => {
    const { says, config, host } = await made({
      ...rest,
      environment: { ...environment, run: [], memoryMb: 64, pidsLimit: 40, cpus: 0.5 },
    });
    assert.equal(says, 'CapBnd:0000000000000000\nNoNewPrivs:1\n0\n');
    assert.deepEqual([host.Memory, host.MemorySwap, host.PidsLimit, host.NanoCpus], [64 * 2 ** 20, 64 * 2 ** 20, 40, 5e8]);
    assert.deepEqual([host.Init, host.LogConfig?.Type, host.RestartPolicy?.Name, host.NetworkMode], [true, 'none', 'no', 'none']);
    assert.deepEqual([host.Privileged, host.Binds, host.PidMode, config.Hostname], [false, null, '', 'localhost']);
    const { 'terminal-rsi.lease': lease, 'terminal-rsi.attempt': attempt } = config.Labels;
    assert.ok(Number(lease) > Date.now() / 1000 + 3600 && attempt !== undefined, 'a lease longer than its task');
  });

  it('of an image of its own has what services need and no more', async () => {
    const bits = { CHOWN: 0, DAC_OVERRIDE: 1, FOWNER: 3, FSETID: 4, KILL: 5, SETGID: 6, SETUID: 7, NET_BIND_SERVICE: 10, SYS_CHROOT: 18 };
    assert.deepEqual(Object.keys(bits).sort(), [...CAPABILITIES].sort());
    const mask = Object.values(bits).reduce((sum, bit) => sum + 2 ** bit, 0);
    const expected = `CapBnd:${mask.toString(16).padStart(16, '0')}\n`;
    const { says, config } = await made({ ...rest, environment: ownImage });
    assert.equal(says, `${expected}NoNewPrivs:1\n0\n`, 'its user is not root');
    assert.ok(config.Env.includes('OWN=image') && !config.Env.some((variable) => variable.startsWith('HOME=')));
    const root = { agentUser: 'root', verifierUser: '0' };
    assert.equal((await made({ ...rest, ...root, environment: ownImage })).says, `${expected}NoNewPrivs:0\n0\n`, 'all are root');
    assert.equal((await made({ ...rest, ...root, verifierUser: 'tester', environment: ownImage })).says, `${expected}NoNewPrivs:1\n0\n`);
  });

  it('gets templates of its variables from this machine, and says which is missing', async () => {
    process.env['TERMINAL_RSI_TEST_VALUE'] = 'from here';
    const env = { GIVEN: '${TERMINAL_RSI_TEST_VALUE}', DEFAULTED: '${TERMINAL_RSI_TEST_NOTHING:-else}' };
    const { config } = await made({ ...rest, environment: { ...environment, run: [], env } });
    assert.deepEqual(
      config.Env.filter((variable) => /^(GIVEN|DEFAULTED)/.test(variable)),
      ['GIVEN=from here', 'DEFAULTED=else'],
    );
    await assert.rejects(
      made({ ...rest, environment: { ...environment, run: [], env: { MISSING: '${TERMINAL_RSI_TEST_NOTHING}' } } }),
      /env\.MISSING = .*TERMINAL_RSI_TEST_NOTHING is not set/,
    );
  });
});
