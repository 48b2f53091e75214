/** Jobs of episodes with their real activities: real workflow, real embedded sandboxes that fail where a test says so. */
import assert from 'node:assert/strict';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import type { WorkflowFailedError } from '@temporalio/client';
import { EmbeddedProvider } from '../environment/embedded/provider.ts';
import { EngineLostError, InfrastructureError } from '../environment/errors.ts';
import { openDataset } from '../environment/tasks/datasets.ts';
import { TaskCache } from '../environment/tasks/task.ts';
import { fixtures } from '../environment/testing.ts';
import type { Sandbox, SandboxLabels, Task } from '../environment/types.ts';
import { ArtifactStore } from '../records/artifacts.ts';
import { jobResultSchema } from '../records/job-result.ts';
import type { JobResult } from '../records/job-result.ts';
import { recordedActivities } from '../tests/recorded-activities.ts';
import { TemporalServer, withWorkers } from '../tests/temporal.ts';
import { TASK_QUEUE } from '../workflows/contract.ts';
import type { TaskEpisodesInput } from '../workflows/episodes-config.ts';
import type { TaskEpisodesResult } from '../workflows/job-contract.ts';
import type { taskEpisodes } from '../workflows/task-episodes.ts';
import type { RolloutDependencies } from './dependencies.ts';
import { createRolloutActivities } from './rollout-activities.ts';

const data = await mkdtemp(path.join(tmpdir(), 'terminal-rsi-jobs-'));
const store = new ArtifactStore(path.join(data, 'artifacts'));

/** Embedded sandboxes; `fails` decides about each that is started, by the task and how often it was started before. */
class FailingProvider extends EmbeddedProvider {
  readonly started: string[] = [];
  readonly fails: (task: string, before: number, labels: SandboxLabels) => Error | undefined;
  constructor(fails: (task: string, before: number, labels: SandboxLabels) => Error | undefined = () => undefined) {
    super();
    this.fails = fails;
  }
  override start(task: Task, labels: SandboxLabels, ...rest: [AbortSignal?]): Promise<Sandbox> {
    const before = this.started.filter((id) => id === task.id).length;
    this.started.push(task.id);
    const error = this.fails(task.id, before, labels);
    return error ? Promise.reject(error) : super.start(task, labels, ...rest);
  }
}

/** Of the test that runs: one pair of workers serves them all. */
let current = new FailingProvider();
const cache = new TaskCache();
const unused = (): never => assert.fail('no policy takes part');
const deps: RolloutDependencies = {
  ...{ store, data, sampler: { sample: unused, endSession: unused }, provider: () => current, policy: unused },
  task: ({ dir = '' }) => cache.load(dir),
  dataset: (place, selection) => openDataset(place, selection),
};
let server: TemporalServer;
let end = (): void => undefined;
let working: Promise<void>;
before(async () => {
  server = await TemporalServer.start();
  const activities = { rollout: createRolloutActivities(deps), gpu: recordedActivities().gpu };
  working = withWorkers(server, activities, () => new Promise((resolve) => (end = resolve)));
});
after(async () => {
  end();
  await working;
  await server.stop();
  await rm(data, { recursive: true, force: true });
});

let jobs = 0;
const base = { dataset: fixtures, sandbox: 'embedded', verifier: 'separate', agent: 'nop' } as const;
async function run(provider: FailingProvider, input: TaskEpisodesInput): Promise<{ result: TaskEpisodesResult; job: JobResult }> {
  current = provider;
  const args: [TaskEpisodesInput] = [{ ...base, ...input }];
  const options = { taskQueue: TASK_QUEUE, workflowId: `job-${++jobs}`, args };
  const handle = await server.client.workflow.start<typeof taskEpisodes>('taskEpisodes', options);
  const result = await handle.result();
  return { result, job: jobResultSchema.parse(await store.readJson(result.result)) };
}
const outcomes = ({ trials }: JobResult): Record<string, string> =>
  Object.fromEntries(trials.map(({ task, outcome, error }) => [task, error ?? outcome]));

describe('a job of episodes', () => {
  it('writes every trial in Harbor’s layout, and sums up', async () => {
    const provider = new FailingProvider();
    const { result, job } = await run(provider, {});
    assert.deepEqual(outcomes(job), {
      'custom-reward': 'RewardFileNotFoundError',
      'silent-verifier': 'RewardFileNotFoundError',
      'slow-verifier': 'VerifierTimeoutError',
      'sort-names': 'failed',
    });
    assert.deepEqual(
      [job.counts.trials, job.counts.noVerdict, job.infra_failed_rate],
      [4, 3, 0],
      'a verifier’s fault is not the environment’s',
    );
    const names = (await readdir(result.directory)).filter((name) => !name.startsWith('.'));
    assert.deepEqual(names.sort(), [...job.trials.map(({ name }) => name), 'config.json', 'result.json'].sort());
    const trial = JSON.parse(
      await readFile(path.join(result.directory, names.find((name) => name.startsWith('slow')) ?? '', 'result.json'), 'utf8'),
    ) as {
      exception_info: { exception_type: string };
    };
    assert.equal(trial.exception_info.exception_type, 'VerifierTimeoutError');
  });

  it('one episode that fails fails no other, and each attempt has a new sandbox (failure 17)', async () => {
    const broken = new InfrastructureError('no space', { type: 'EnvironmentStartTimeoutError' });
    const sandboxes: string[] = [];
    let victim: string | undefined;
    const provider = new FailingProvider((_task, _before, { episodeId }) => {
      victim ??= episodeId;
      sandboxes.push(episodeId === victim ? 'victim' : 'other');
      return episodeId === victim ? broken : undefined;
    });
    const { job } = await run(provider, { include: ['sort-names'], attempts: 2, samples: 3, concurrency: 1 });
    assert.deepEqual(
      job.trials.map(({ outcome, error, attempts, infraFailed }) => [outcome, error, attempts, infraFailed]),
      [
        ['no-verdict', 'EnvironmentStartTimeoutError', 2, true],
        ['failed', undefined, 1, false],
        ['failed', undefined, 1, false],
      ],
    );
    assert.deepEqual([job.counts.infraFailed, job.meanReward], [1, 0], 'the mean is that of the two');
    assert.deepEqual(sandboxes, ['victim', 'victim', 'other', 'other', 'other', 'other'], 'for the agent and for the verifier');
  });

  it('goes on after an environment that failed once, and after an engine that was lost, which is no attempt', async () => {
    const errors = [new EngineLostError('engine restarts'), new InfrastructureError('build failed', { type: 'SandboxBuildFailedError' })];
    const { job } = await run(new FailingProvider((_task, before) => errors[before]), { include: ['sort-names'], attempts: 2 });
    assert.deepEqual(
      job.trials.map(({ outcome, attempts }) => [outcome, attempts]),
      [['failed', 2]],
    );
  });

  it('a trial that is there is not run again; a later job in the folder tries what its environment failed', async () => {
    const jobDir = path.join(data, 'again');
    const broken = new InfrastructureError('engine is ill', { type: 'SandboxBuildFailedError' });
    const input = { include: ['sort-names', 'custom-reward'], attempts: 1, jobDir };
    const first = await run(new FailingProvider((task) => (task === 'sort-names' ? broken : undefined)), input);
    assert.equal(first.job.counts.infraFailed, 1);
    const well = new FailingProvider();
    const second = await run(well, input);
    assert.deepEqual(outcomes(second.job), { 'sort-names': 'failed', 'custom-reward': 'RewardFileNotFoundError' });
    assert.deepEqual([...new Set(well.started)], ['sort-names']);
    assert.equal((await readdir(path.join(jobDir, '.terminal-rsi', 'replaced'))).length, 1, 'what the first one left is kept');
    const third = new FailingProvider();
    await run(third, input);
    assert.deepEqual(third.started, []);
    await assert.rejects(run(third, { ...input, agent: 'oracle' }), (error: WorkflowFailedError) => {
      let cause: unknown = error;
      while (cause instanceof Error && cause.cause) cause = cause.cause;
      return /agent: got "oracle", expected "nop", with which the trials in .*again were made/.test((cause as Error).message);
    });
  });

  it('runs the solution where there is one, and names the tasks that it cannot run', async () => {
    const { result, job } = await run(new FailingProvider(), { agent: 'oracle', samples: 2 });
    assert.deepEqual([job.counts.trials, job.counts.passed, result.meanReward], [2, 2, 1]);
    assert.deepEqual(
      result.refused.map(({ task, reason }) => `${task}: ${reason}`),
      ['custom-reward: it has no solution/', 'silent-verifier: it has no solution/', 'slow-verifier: it has no solution/'],
    );
  });
});
