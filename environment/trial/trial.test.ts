/** Trials with real embedded sandboxes that fail where a test says so, and in Docker what only a container can show. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { EmbeddedProvider } from '../embedded/provider.ts';
import { EngineLostError, InfrastructureError, SandboxDiedError } from '../errors.ts';
import type { Agent } from '../harness/agent.ts';
import { scriptedAgent } from '../harness/scripted-agent.ts';
import { backends, countContainers, fixture, testRunKey } from '../testing.ts';
import type { FileTree, Sandbox, SandboxLabels, Task, TaskStep } from '../types.ts';
import { trialName } from './outcome.ts';
import { runTrial } from './run.ts';
import type { TrialOptions } from './run.ts';
import { combineVerdicts, reachesMinimum } from './step-verdicts.ts';

const task = await fixture('sort-names');
const labels: SandboxLabels = { runKey: 'r', episodeId: 'sort-names__0000000', purpose: 'rollout' };
const says = (...replies: string[]): Agent => scriptedAgent({ name: 'replay', replies });
const solving = says('sort names.txt > sorted.txt');

function trialOf(changes: Partial<TrialOptions> = {}): ReturnType<typeof runTrial> {
  return runTrial({
    ...{
      name: labels.episodeId,
      task,
      source: 'fixtures',
      agent: 'oracle',
      harness: 'shell',
      verifierMode: 'task',
      labels,
      sample: 0,
      seed: 0,
    },
    limits: { maxTurns: 5, maxTokensPerTurn: 100, observationTokens: 100, commandTimeoutSec: 5 },
    provider: new WatchedProvider(),
    ...changes,
  });
}

/** Embedded sandboxes that are counted, and changed by `changed`. */
class WatchedProvider extends EmbeddedProvider {
  readonly started: string[] = [];
  open = 0;
  readonly #changed: (sandbox: Sandbox, labels: SandboxLabels, task: Task) => Sandbox;
  constructor(changed: (sandbox: Sandbox, labels: SandboxLabels, task: Task) => Sandbox = (sandbox) => sandbox) {
    super();
    this.#changed = changed;
  }
  override async start(...args: Parameters<EmbeddedProvider['start']>): Promise<Sandbox> {
    this.started.push(args[1].purpose);
    const changed = this.#changed(await super.start(...args), args[1], args[0]);
    this.open++;
    return over(changed, {
      close: async () => {
        await changed.close();
        this.open--;
      },
    });
  }
}
/** A sandbox with some methods replaced. */
function over(sandbox: Sandbox, methods: Partial<Sandbox>): Sandbox {
  return new Proxy(sandbox, {
    get(target, key) {
      const found = (methods as Record<PropertyKey, unknown>)[key] ?? (target as unknown as Record<PropertyKey, unknown>)[key];
      return typeof found === 'function' ? (found as (...args: unknown[]) => unknown).bind(target) : found;
    },
  });
}
const tree = (files: Readonly<Record<string, string>>): FileTree =>
  new Map(Object.entries(files).map(([name, text]) => [name, { data: Buffer.from(text), mode: 0o755 }]));
const text = (files: FileTree, name: string): string | undefined => {
  const file = files.get(name);
  return file && Buffer.from(file.data).toString();
};

describe('runTrial', () => {
  it('gives the oracle’s episode, verdict and files, and the time of each phase', async () => {
    const provider = new WatchedProvider();
    const phases: string[] = [];
    const trial = await trialOf({ provider, onPhase: (phase) => phases.push(phase) });
    assert.deepEqual([trial.verdict.outcome, trial.verdict.reward, trial.rewardValid, trial.error], ['passed', 1, true, undefined]);
    assert.deepEqual([trial.record.agent, trial.record.stopReason, trial.record.taskChecksum], ['oracle', 'exit', task.checksum]);
    assert.deepEqual([trial.verifierMode, provider.started, provider.open], ['shared', ['rollout'], 0]);
    assert.ok(trial.files.agent.has('oracle.txt'));
    assert.equal(text(trial.files.verifier, 'reward.txt')?.trim(), '1');
    assert.deepEqual(phases, ['environmentSetup', 'agentSetup', 'agentExecution', 'verifier']);
    assert.deepEqual(Object.keys(trial.phases).sort(), ['agentExecution', 'agentSetup', 'environmentSetup', 'verifier']);
  });

  it('judges in a fresh sandbox where it is told to, with the workdir and the artifacts', async () => {
    const provider = new WatchedProvider();
    const trial = await trialOf({
      provider,
      agent: says('mkdir -p /logs/artifacts; echo hi > /logs/artifacts/note; sort names.txt > sorted.txt'),
      verifierMode: 'separate',
    });
    assert.deepEqual([trial.verdict.outcome, trial.verifierMode, provider.started], ['passed', 'separate', ['rollout', 'verify']]);
    assert.equal(text(trial.files.artifacts, 'logs/artifacts/note'), 'hi\n');
  });

  it('grades what an agent had done at its time limit, and says that it ran into it (failure 19)', async () => {
    const hurried = { ...task, agentTimeoutSec: 0.3 };
    const trial = await trialOf({ task: hurried, agent: says('sort names.txt > sorted.txt', 'sleep 20') });
    assert.deepEqual([trial.verdict.outcome, trial.verdict.reward, trial.record.stopReason], ['passed', 1, 'agent-timeout']);
    assert.deepEqual(
      [trial.error?.type, trial.error?.policy, trial.rewardValid],
      ['AgentTimeoutError', { retry: false, grade: true, rewardValid: true }, true],
    );
  });

  it('an environment that fails is no reward of 0 (failure 16)', async () => {
    for (const type of ['SandboxBuildFailedError', 'EnvironmentStartTimeoutError', 'InfrastructureError']) {
      const broken = new InfrastructureError('it broke', { type });
      const provider = new (class extends EmbeddedProvider {
        override start(): Promise<Sandbox> {
          return Promise.reject(broken);
        }
      })();
      const trial = await trialOf({ provider });
      assert.deepEqual(
        [trial.verdict.outcome, trial.verdict.reward, trial.rewardValid, trial.error?.type],
        ['no-verdict', undefined, false, type],
      );
      assert.deepEqual([trial.error?.policy.retry, trial.record.stopReason, trial.record.turns], [true, 'error', []]);
    }
  });

  it('a verifier without a verdict is an error of its own, with its output kept (failure 11)', async () => {
    const trial = await trialOf({ task: await fixture('silent-verifier'), agent: says() });
    assert.deepEqual([trial.verdict.outcome, trial.error?.type, trial.rewardValid], ['no-verdict', 'RewardFileNotFoundError', false]);
    assert.equal(trial.error?.policy.retry, false);
    assert.ok(trial.files.verifier.has('test-stdout.txt'));
  });

  it('an agent that kills its sandbox is judged by the files it left, where a fresh sandbox works', async () => {
    const died = new SandboxDiedError('gone', { exitCode: 137 });
    const provider = new WatchedProvider((sandbox, { purpose }) =>
      purpose !== 'rollout'
        ? sandbox
        : over(sandbox, {
            openShell: async (options) => {
              const shell = await sandbox.openShell(options);
              return {
                close: () => shell.close(),
                run: (command, limits) => (command === 'kill -9 -1' ? Promise.reject(died) : shell.run(command, limits)),
              };
            },
          }),
    );
    const trial = await trialOf({ provider, agent: says('sort names.txt > sorted.txt', 'kill -9 -1') });
    assert.deepEqual([trial.verdict.outcome, trial.record.stopReason, trial.error], ['passed', 'sandbox-died', undefined]);
    assert.deepEqual([provider.started, provider.open], [['rollout', 'check', 'verify'], 0]);
  });

  it('leaves a lost engine and a cancellation to the caller, and no sandbox', async () => {
    for (const reason of [new EngineLostError('engine restarts'), new Error('cancelled')]) {
      const controller = new AbortController();
      const provider = new WatchedProvider((sandbox) =>
        over(sandbox, {
          download: () => {
            if (!(reason instanceof EngineLostError)) controller.abort(reason);
            return Promise.reject(reason);
          },
        }),
      );
      await assert.rejects(trialOf({ provider, agent: solving, signal: controller.signal }), reason);
      assert.equal(provider.open, 0);
    }
  });

  it('waits for the healthcheck before the agent, and gives up after its retries', async () => {
    const healthcheck = { command: 'cat ready', intervalSec: 0.01, timeoutSec: 5, startPeriodSec: 0, startIntervalSec: 0.01, retries: 3 };
    let checks = 0;
    const provider = new WatchedProvider((sandbox) =>
      over(sandbox, {
        exec: async (command, options) => {
          if (command !== 'cat ready') return await sandbox.exec(command, options);
          if (++checks === 3) await sandbox.exec('touch ready', { timeoutSec: 5 });
          return await sandbox.exec(command, options);
        },
      }),
    );
    const trial = await trialOf({ task: { ...task, healthcheck }, provider });
    assert.deepEqual([checks, trial.verdict.outcome], [3, 'passed']);
    const never = await trialOf({ task: { ...task, healthcheck } });
    assert.deepEqual(
      [never.error?.type, never.error?.policy.retry, never.rewardValid, never.record.stopReason],
      ['HealthcheckError', true, false, 'error'],
    );
    assert.match(never.error?.message ?? '', /sort-names: the healthcheck "cat ready" exits with 1, 3 times in a row/);
  });

  it('refuses a task that the sandbox cannot run, without trying it', async () => {
    const provider = new WatchedProvider();
    const trial = await trialOf({ provider, task: { ...task, environment: { ...task.environment, needs: ['gpu'] } } });
    assert.deepEqual([trial.error?.type, trial.error?.policy.retry, trial.rewardValid, provider.started], ['TaskError', false, false, []]);
  });
});

const docker = (await backends()).find(({ name }) => name === 'docker');
describe('runTrial in Docker', { skip: docker?.skip ?? 'no such backend' }, () => {
  it('judges what is left of a container that its agent killed, and leaves none behind', async () => {
    const provider = docker?.provider() ?? assert.fail();
    try {
      const killed = { ...labels, runKey: testRunKey };
      const trial = await trialOf({
        provider,
        labels: killed,
        agent: says('sort names.txt > sorted.txt', 'kill -9 -1; kill -9 1; kill -9 -1'),
      });
      // The container's first process cannot be killed from inside; what the agent can do is to end everything else.
      assert.ok(['exit', 'sandbox-died'].includes(trial.record.stopReason), trial.record.stopReason);
      assert.deepEqual([trial.verdict.outcome, trial.rewardValid, trial.error], ['passed', true, undefined]);
      assert.equal(await countContainers(testRunKey), 0);
    } finally {
      await provider.close();
    }
  });
});

describe('a task of several steps', () => {
  const {
    id: _id,
    dir: _dir,
    family: _f,
    tier: _t,
    workdir: _w,
    environment: _e,
    checksum: _c,
    name: _n,
    healthcheck: _h,
    ...phase
  } = task;
  const step = (name: string, reward: string, changes: Partial<TaskStep> = {}): TaskStep => ({
    ...phase,
    ...{
      name,
      instruction: `Do ${name}.`,
      workdirFiles: new Map(),
      tests: tree({ 'test.sh': `#!/bin/bash\n${reward}\n`, [`${name}.txt`]: '' }),
    },
    ...changes,
  });
  const steps = (...all: TaskStep[]): Task => ({ ...task, ...all[0], id: task.id, steps: all });

  it('runs its steps in one sandbox, each with its files, set-up, instruction and tests, and takes the mean', async () => {
    const provider = new WatchedProvider();
    const told: string[] = [];
    const base = says('cat given >> log; ls -d /tests', 'exit', 'cat given >> log; ls -d /tests; cat log');
    const agent: Agent = {
      name: 'replay',
      open: (episode) => {
        const conversation = base.open(episode);
        return { ...conversation, instruct: (instruction) => (told.push(instruction.trim()), conversation.instruct(instruction)) };
      },
    };
    const reward = (value: string): string => `grep -q made made.txt && echo ${value} > /logs/verifier/reward.txt`;
    const trial = await trialOf({
      provider,
      agent,
      task: steps(
        step('one', reward('1'), { workdirFiles: tree({ given: 'first\n', 'setup.sh': 'echo made > made.txt' }) }),
        step('two', reward('0.5'), { workdirFiles: tree({ given: 'second\n' }) }),
      ),
    });
    assert.deepEqual(
      trial.steps?.map(({ name, turns, verdict }) => [name, turns, verdict.reward]),
      [
        ['one', [0, 2], 1],
        ['two', [2, 4], 0.5],
      ],
    );
    assert.deepEqual([trial.verdict.reward, trial.verdict.outcome, trial.rewardValid], [0.75, 'failed', true]);
    assert.deepEqual(told, ['Do one.', 'Do two.']);
    assert.deepEqual([provider.started, provider.open], [['rollout'], 0]);
    const [first, , second] = trial.record.turns;
    assert.match(first?.commands[0]?.stderr ?? '', /tests/, 'no tests before the first verification');
    assert.match(second?.commands[0]?.stderr ?? '', /tests/, 'nor after it');
    assert.equal(second?.commands[0]?.stdout, 'first\nsecond\n');
  });

  it('ends at a step below its minimum', async () => {
    const gated = (minReward: TaskStep['minReward']): Task =>
      steps(
        step('one', 'echo 0.4 > /logs/verifier/reward.txt', minReward === undefined ? {} : { minReward }),
        step('two', 'echo 1 > /logs/verifier/reward.txt'),
      );
    const stopped = await trialOf({ agent: says(), task: gated(0.5) });
    assert.deepEqual([stopped.steps?.length, stopped.verdict.reward], [1, 0.4]);
    const through = await trialOf({ agent: says(), task: gated(0.4) });
    assert.deepEqual([through.steps?.length, through.verdict.reward], [2, 0.7]);
  });

  it('its oracle solves every step with the step’s own solution', async () => {
    const solved = step('one', '[ -f one ] && echo 1 > /logs/verifier/reward.txt', { solution: tree({ 'solve.sh': 'touch one' }) });
    const trial = await trialOf({
      task: {
        ...steps(solved, {
          ...step('two', '[ -f two ] && echo 1 > /logs/verifier/reward.txt'),
          solution: tree({ 'solve.sh': 'touch two' }),
        }),
      },
    });
    assert.deepEqual([trial.verdict.outcome, trial.steps?.map(({ verdict }) => verdict.reward)], ['passed', [1, 1]]);
  });
});

describe('verdicts of several steps', () => {
  const judged = (name: string, rewards: Readonly<Record<string, number>>) => ({
    name,
    verdict: { outcome: 'failed' as const, checks: [{ name: 'c', passed: true }], reward: rewards['reward'] ?? 0, rewards },
  });
  const unjudged = {
    name: 'x',
    verdict: { outcome: 'no-verdict' as const, checks: [], error: { type: 'VerifierTimeoutError', message: 'm' } },
  };

  it('are the mean of each reward, where a step that does not name it counts 0 and one without a verdict not at all', () => {
    const combined = combineVerdicts([judged('a', { reward: 1, style: 0.5 }), unjudged, judged('b', { reward: 1 })], 'mean');
    assert.deepEqual([combined.rewards, combined.reward, combined.outcome], [{ reward: 1, style: 0.25 }, 1, 'passed']);
    assert.deepEqual(
      combined.checks.map(({ name }) => name),
      ['a: c', 'b: c'],
    );
    assert.equal(combineVerdicts([unjudged], 'mean').outcome, 'no-verdict');
  });
  it('are the last one’s with `final`', () => {
    assert.equal(combineVerdicts([judged('a', { reward: 1 }), judged('b', { reward: 0.25 })], 'final').reward, 0.25);
    assert.equal(combineVerdicts([judged('a', { reward: 1 }), unjudged], 'final').outcome, 'no-verdict');
  });
  it('let the steps go on where every minimum is reached', () => {
    const { verdict } = judged('a', { reward: 0.5, style: 1 });
    assert.deepEqual(
      [undefined, 0.5, 0.6, { style: 1, reward: 0.1 }, { other: 0 }].map((minReward) =>
        reachesMinimum(minReward === undefined ? {} : { minReward }, verdict),
      ),
      [true, true, false, true, false],
    );
    assert.equal(reachesMinimum({ minReward: 0 }, unjudged.verdict), false);
  });
});

describe('trialName', () => {
  it('is short, and the same for the same job, task and sample alone', () => {
    const long = 'a-task-with-a-name-that-is-longer-than-that';
    assert.match(trialName('job', long, 0), new RegExp(`^${long.slice(0, 32)}__[0-9a-z]{7}$`));
    assert.equal(trialName('job', long, 0), trialName('job', long, 0));
    assert.equal(
      new Set([trialName('job', long, 0), trialName('job', long, 1), trialName('other', long, 0), trialName('job', `${long}x`, 0)]).size,
      4,
    );
  });
});
