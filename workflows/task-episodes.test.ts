/** Jobs of episodes: concurrency, pages and executions, the breaker, and what a wrong input gets; with recorded activities. */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { WorkflowFailedError } from '@temporalio/client';
import type { WorkflowHandle } from '@temporalio/client';
import { ApplicationFailure } from '@temporalio/common';
import { recordedActivities } from '../tests/recorded-activities.ts';
import type { Behaviour, Call } from '../tests/recorded-activities.ts';
import { TemporalServer, withWorkers } from '../tests/temporal.ts';
import { TASK_QUEUE } from './contract.ts';
import { resolveEpisodesConfig } from './episodes-config.ts';
import type { TaskEpisodesInput } from './episodes-config.ts';
import type { JobProgress, RunTrialInput } from './job-contract.ts';
import { job, pause, resume } from './messages.ts';
import { ConfigError } from './profiles.ts';
import type { taskEpisodes } from './task-episodes.ts';

/** Of the test that runs: one pair of workers serves them all. */
let current: Behaviour = {};
const recorded = recordedActivities({
  get trials() {
    return current.trials ?? 3;
  },
  trial: (index) => current.trial?.(index) ?? {},
  before: (call) => current.before?.(call),
});
let server: TemporalServer;
let end = (): void => undefined;
let working: Promise<void>;
before(async () => {
  server = await TemporalServer.start();
  working = withWorkers(server, recorded, () => new Promise((resolve) => (end = resolve)));
});
after(async () => {
  end();
  await working;
  await server.stop();
});

let jobs = 0;
type Handle = WorkflowHandle<typeof taskEpisodes>;
async function withJob<T>(input: unknown, behaviour: Behaviour, check: (handle: Handle, calls: readonly Call[]) => Promise<T>): Promise<T> {
  current = behaviour;
  recorded.calls.length = 0;
  const options = { taskQueue: TASK_QUEUE, workflowId: `job-${++jobs}`, args: [input as TaskEpisodesInput] as [TaskEpisodesInput] };
  return await check(await server.client.workflow.start<typeof taskEpisodes>('taskEpisodes', options), recorded.calls);
}
async function shows(handle: Handle, what: (now: JobProgress) => boolean): Promise<JobProgress> {
  for (let tries = 0; tries < 300; tries++) {
    const now = await handle.query(job).catch(() => undefined);
    if (now && what(now)) return now;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  return assert.fail('not within 15 s');
}
const base = { dataset: 'some/tasks', sandbox: 'embedded' } as const;
const trialsOf = (calls: readonly Call[]): RunTrialInput[] =>
  calls.filter(({ name }) => name === 'runTrial').map(({ input }) => input as unknown as RunTrialInput);

describe('taskEpisodes', () => {
  it('runs every trial of the plan once, at most so many at a time, and sums up', async () => {
    let [now, most] = [0, 0];
    const behaviour: Behaviour = {
      trials: 7,
      trial: (index) =>
        index === 2
          ? { outcome: 'failed', reward: 0 }
          : index === 3
            ? { outcome: 'no-verdict', reward: undefined as never, error: 'VerifierTimeoutError' }
            : index === 4
              ? { error: 'AgentTimeoutError', reward: 0.5, outcome: 'failed' }
              : {},
      async before({ name }) {
        if (name !== 'runTrial') return;
        most = Math.max(most, ++now);
        await new Promise((resolve) => setTimeout(resolve, 20));
        now--;
      },
    };
    const { result, calls } = await withJob({ ...base, concurrency: 2 }, behaviour, async (handle, called) => ({
      result: await handle.result(),
      calls: [...called],
    }));
    assert.deepEqual(
      trialsOf(calls)
        .map(({ trial }) => trial.task)
        .sort(),
      Array.from({ length: 7 }, (_, index) => `task-${index}`),
    );
    assert.equal(most, 2);
    assert.deepEqual(result.counts, {
      ...{ done: 7, passed: 4, failed: 2, noVerdict: 1, infraFailed: 0, rewardSum: 4.5, rewards: 6 },
      errors: { VerifierTimeoutError: 1, AgentTimeoutError: 1 },
    });
    assert.equal(result.meanReward, 0.75, 'an episode without verdict is in no mean');
    assert.equal(calls.at(-1)?.name, 'closeJob');
  });

  it('pauses when most of the last episodes failed for their environment, and goes on when told (failure 16)', async () => {
    const failing = {
      outcome: 'no-verdict',
      reward: undefined as never,
      rewardValid: false,
      infraFailed: true,
      error: 'SandboxBuildFailedError',
    } as const;
    const behaviour: Behaviour = { trials: 12, trial: (index) => (index < 6 ? failing : {}) };
    await withJob({ ...base, concurrency: 1 }, behaviour, async (handle, calls) => {
      const paused = await shows(handle, ({ status }) => status === 'paused');
      assert.match(paused.message ?? '', /^5 of the last 5 episodes failed for their environment, the last for SandboxBuildFailedError/);
      assert.equal(trialsOf(calls).length, 5, 'it does not burn through the rest');
      await handle.executeUpdate(resume);
      const result = await handle.result();
      assert.deepEqual([result.counts.done, result.counts.infraFailed, result.infraFailedRate, result.meanReward], [12, 6, 0.5, 1]);
    });
  });

  it('an episode whose activity fails for good fails no other, but a wrong input ends the job (failure 17)', async () => {
    const failing = (type: string): Behaviour => ({
      before({ name, input }) {
        const { trial } = input as unknown as Partial<RunTrialInput>;
        if (name !== 'runTrial' || trial?.task !== 'task-1') return undefined;
        return Promise.reject(ApplicationFailure.nonRetryable('the task has changed', type));
      },
    });
    const result = await withJob(base, failing('TaskError'), (handle) => handle.result());
    assert.deepEqual(
      [result.counts.passed, result.counts.infraFailed, result.counts.errors, result.meanReward],
      [2, 1, { TaskError: 1 }, 1],
    );
    await assert.rejects(
      withJob(base, failing('UserError'), (handle) => handle.result()),
      WorkflowFailedError,
    );
  });

  it('holds before the next episode while a person pauses it', async () => {
    let reach = (): void => undefined;
    let release = (): void => undefined;
    const reached = new Promise<void>((resolve) => (reach = resolve));
    const released = new Promise<void>((resolve) => (release = resolve));
    const behaviour: Behaviour = {
      async before({ name }) {
        if (name !== 'runTrial') return;
        reach();
        await released;
      },
    };
    await withJob({ ...base, concurrency: 1 }, behaviour, async (handle, calls) => {
      await reached;
      assert.equal(await handle.executeUpdate(pause), 'paused: the episodes that have started are finished first');
      release();
      const held = await shows(handle, ({ counts }) => counts.done === 1);
      assert.deepEqual([held.status, held.running, trialsOf(calls).length], ['paused', [], 1]);
      await handle.executeUpdate(resume);
      assert.equal((await handle.result()).counts.done, 3);
    });
  });

  it('goes through the plan in pages, and continues as new after 400 trials', async () => {
    const { result, calls, executions } = await withJob({ ...base, concurrency: 200 }, { trials: 410 }, async (handle, called) => ({
      ...{ result: await handle.result(), calls: [...called] },
      executions: (await server.executions()).filter(({ workflowId }) => workflowId === handle.workflowId).length,
    }));
    assert.deepEqual([result.counts.done, result.counts.passed, executions], [410, 410, 2]);
    assert.equal(new Set(trialsOf(calls).map(({ trial }) => trial.task)).size, 410);
    assert.deepEqual(
      calls.filter(({ name }) => name === 'planTrials').map(({ input }) => input['from']),
      [0, 200, 400],
    );
  });

  it('removes what it left behind when it is cancelled', async () => {
    let reach = (): void => undefined;
    const reached = new Promise<void>((resolve) => (reach = resolve));
    const behaviour: Behaviour = {
      before({ name }) {
        if (name !== 'runTrial') return undefined;
        reach();
        return new Promise((resolve) => setTimeout(resolve, 200));
      },
    };
    await withJob({ ...base, sandbox: 'docker' }, behaviour, async (handle, calls) => {
      await reached;
      await handle.cancel();
      await assert.rejects(handle.result(), WorkflowFailedError);
      assert.deepEqual([(await handle.describe()).status.name, calls.at(-1)?.name], ['CANCELLED', 'sweep']);
    });
  });

  it('fails at once on a wrong input, naming field, value and what was expected', async () => {
    await withJob({ agent: 'orakel', concurrency: 0 }, {}, async (handle, calls) => {
      await assert.rejects(handle.result(), (error: WorkflowFailedError) => {
        assert.match(error.cause?.message ?? '', /dataset: got nothing, expected a text that is not empty/);
        assert.match(error.cause?.message ?? '', /agent: got "orakel", expected oracle, nop, replay:FILE/);
        assert.match(error.cause?.message ?? '', /concurrency: got 0, expected a whole number between 1 and 512/);
        return true;
      });
      assert.deepEqual(calls, []);
    });
  });
});

describe('resolveEpisodesConfig', () => {
  it('fills what is missing, with the limits that a policy is trained with', () => {
    const { agent, concurrency, verifier, limits } = resolveEpisodesConfig({ dataset: 'x' });
    assert.deepEqual([agent, concurrency, verifier, limits.commandTimeoutSec], ['oracle', 8, 'task', 120]);
    assert.equal(resolveEpisodesConfig({ dataset: 'x', agent: 'policy:models/tiny-base' }).limits.maxTokensPerTurn, 64);
  });
  it('wants an address with a model, and only there', () => {
    assert.throws(
      () => resolveEpisodesConfig({ dataset: 'x', agent: 'model:some-1' }),
      /baseUrl: got null, expected the address of the endpoint that serves some-1/,
    );
    assert.throws(() => resolveEpisodesConfig({ dataset: 'x', baseUrl: 'http://localhost:1/v1' }), ConfigError);
  });
});
