/** Attacks against both sandboxes, and that the tests of this file could fail: a runner without the measures pays out. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import Docker from 'dockerode';
import { backends } from '../testing.ts';
import type { SandboxProvider } from '../types.ts';
import { attackedTask, held, tryAttack } from './run.ts';
import type { VerifierMode } from './run.ts';
import { attacks } from './attacks.ts';
import type { Attack } from './attacks.ts';
import { watchHarm } from './harm.ts';
import { leftBehind, machineState } from './leftovers.ts';

const [embedded, docker] = await backends();
const runKey = `attacks-test-${randomUUID()}`;
const named = (name: string): Attack => attacks.find((attack) => attack.name === name) ?? assert.fail(`no attack ${name}`);
let folder: string;
const temporary = process.env.TMPDIR;

before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'terminal-rsi-attacks-test-'));
  process.env.TMPDIR = folder;
});
after(async () => {
  if (temporary === undefined) delete process.env.TMPDIR;
  else process.env.TMPDIR = temporary;
  await rm(folder, { recursive: true, force: true });
});

/** One attack, which must come to nothing. Other tests use the engine too, so only what bears this run's label is looked at. */
async function mustHold(attack: Attack, mode: VerifierMode, provider: SandboxProvider): Promise<void> {
  const machine = { ...(provider.kind === 'docker' ? { docker: new Docker() } : {}), alone: false };
  const outcome = await tryAttack(attack, mode, { provider, machine, runKey });
  assert.ok(held(outcome), JSON.stringify(outcome));
}

describe('attacks in the embedded sandbox', () => {
  const provider = embedded?.provider() ?? assert.fail();
  // Ten thousands of files in the sandbox's memory take seconds there; `npm run attacks` has them.
  for (const attack of attacks.filter(({ name }) => name !== 'disk-fill'))
    it(`${attack.name}: it does not come about that ${attack.mustNot}`, () => mustHold(attack, 'shared', provider));
});

describe('attacks in Docker', { skip: docker?.skip ?? 'no such sandbox' }, () => {
  let provider: SandboxProvider;
  before(() => (provider = docker?.provider() ?? assert.fail()));
  after(() => provider.close());

  const chosen = [
    ['background-writer', 'shared', ''],
    ['path-shims', 'shared', ' (failure 12)'],
    ['kill-all', 'separate', ' (failure 18)'],
    ['exfiltration', 'separate', ' (failure 13)'],
  ] as const;
  for (const [name, mode, failure] of chosen)
    it(`${name}, judged ${mode}: it does not come about that ${named(name).mustNot}${failure}`, () =>
      mustHold(named(name), mode, provider));

  // Harbor's order: the reward files are removed, the tests laid over what is there and run; the agent's processes live on.
  for (const name of ['background-writer', 'path-shims', 'reads-the-answers'])
    it(`${name} earns a reward from a runner that kills nothing, trusts PATH and brings the answers early`, async () => {
      const task = await attackedTask(named(name), 'docker');
      const sandbox = await provider.start(task, { runKey, episodeId: `naive-${name}`, purpose: 'check' });
      try {
        if (task.solution) await sandbox.upload(task.solution, '/solution');
        for (const command of named(name).commands) await sandbox.exec(command, { timeoutSec: 5 });
        await sandbox.exec('rm -f /logs/verifier/reward.txt /logs/verifier/reward.json; mkdir -p /logs/verifier', { timeoutSec: 5 });
        await sandbox.upload(task.tests, '/tests');
        await sandbox.exec('chmod +x /tests/test.sh; /tests/test.sh', { timeoutSec: 5 });
        // Between the shell's truncation and its write the file is empty: one look may come at that moment.
        let reward = '';
        for (let look = 0; look < 20 && reward !== '1'; look++) {
          await sleep(100);
          reward = Buffer.from((await sandbox.readFile('/logs/verifier/reward.txt')) ?? '')
            .toString()
            .trim();
        }
        assert.equal(reward, '1');
      } finally {
        await sandbox.close();
      }
    });

  it('a container that is left is found', async () => {
    const task = await attackedTask(named('forged-reward'), 'docker');
    const key = `${runKey}-left`;
    const machine = { docker: new Docker(), alone: false };
    const state = await machineState(machine);
    const sandbox = await provider.start(task, { runKey: key, episodeId: 'left', purpose: 'check' });
    try {
      const [found] = await leftBehind(machine, key, state, 0);
      assert.match(found ?? '', /^container \/terminal-rsi-check-[0-9a-f]+ \(running\)$/);
    } finally {
      await sandbox.close();
    }
  });
});

describe('watchHarm', () => {
  const bounds = { memoryGrowth: 64 * 1024 * 1024, stallMs: 200 };

  it('sees memory, a blocked event loop and an error that nobody catches', async () => {
    // In a process of its own: the test runner takes an error that nobody catches for its own.
    const source = `
      import { watchHarm } from ${JSON.stringify(join(import.meta.dirname, 'harm.ts'))};
      const { harm } = await watchHarm(${JSON.stringify(bounds)}, async () => {
        const held = Buffer.alloc(${2 * bounds.memoryGrowth}, 1);
        for (const end = performance.now() + ${3 * bounds.stallMs}; performance.now() < end; );
        void Promise.reject(new Error('lost'));
        await new Promise((resolve) => setTimeout(resolve, 60));
        return held;
      });
      console.log(JSON.stringify(harm.why));`;
    const { stdout } = await promisify(execFile)(process.execPath, ['--import', 'tsx', '--input-type=module', '-e', source]);
    const why = JSON.parse(stdout) as string[];
    assert.equal(why.length, 3, stdout);
    assert.match(why.join('; '), /^nobody caught: lost; memory grew by \d+ MiB, more than 64 MiB; the event loop stood still for \d+ ms/);
  });

  it('finds nothing in work that does no harm', async () => {
    const { value, harm } = await watchHarm({ ...bounds, stallMs: 60_000 }, () => sleep(30).then(() => 'done'));
    assert.deepEqual([value, harm.harmed, harm.why], ['done', false, []]);
  });
});
