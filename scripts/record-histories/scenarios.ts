/**
 * The runs whose histories are recorded: together they take every path of every workflow. Activities answer at once; what
 * a scenario is about is what people, policies and failures do to a run.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { ApplicationFailure } from '@temporalio/common';
import type { Behaviour, Call } from '../../tests/recorded-activities.ts';
import type { RunProgress, TrainingRunInput } from '../../workflows/contract.ts';
import { approveStage, job, pause, pauseRun, progress, resume, resumeRun } from '../../workflows/messages.ts';
import type { DrivenRun, Stop } from './driven-run.ts';

export interface Scenario {
  /** Also the run's workflow id, so that a failing replay names it. */
  readonly name: string;
  /** What the run goes through. */
  readonly shows: string;
  /** Default: trainingRun. */
  readonly workflow?: 'trainingRun' | 'taskEpisodes';
  readonly input?: unknown;
  readonly behaviour?: Omit<Behaviour, 'finished'>;
  /** Calls of activities that wait until `drive` lets them go on. */
  readonly holds?: readonly Stop[];
  /** The scenario whose stages are found finished; it comes earlier in the list. */
  readonly reuses?: { readonly scenario: string; readonly stages: readonly string[] };
  /** What people do while it runs. */
  readonly drive?: (run: DrivenRun) => Promise<void>;
  readonly ends: 'completed' | 'failed' | 'cancelled';
}

const small = {
  profile: 'smoke',
  rounds: 1,
  rollout: { chunkSize: 8, chunksInFlight: 2 },
  evaluation: { repeats: 1 },
  rpr: { iterations: [2], tasksPerIteration: 2, samplesPerTask: 3 },
} as const satisfies TrainingRunInput;

/** Where a run is paused, in the order in which it comes there: each is held, the pause is sent, and then it goes on. */
const PAUSES: readonly Stop[] = [
  'calibrate in Base',
  'evaluate in Base',
  'rollout in RSR-1',
  'verify in RSR-1',
  'rewrite in RSR-1',
  'fineTuneActor in RSR-1',
  'reward in RPR-1',
  'warmUpCritic in RPR-1',
  'jointPpo in RPR-1',
  'recordStage in RPR-1',
];

function pauses(by: 'updates' | 'signals'): (run: DrivenRun) => Promise<void> {
  return async ({ handle, held, release }) => {
    for (const stop of PAUSES) {
      await held(stop);
      await (by === 'signals' ? handle.signal(pauseRun) : handle.executeUpdate(pause));
      await shows(handle, ({ status }) => status === 'paused');
      release(stop);
      // What was held ends within moments, and then a paused run does nothing that one could wait for.
      await sleep(1_000);
      await (by === 'signals' ? handle.signal(resumeRun) : handle.executeUpdate(resume));
    }
  };
}

async function shows(handle: DrivenRun['handle'], what: (now: RunProgress) => boolean): Promise<void> {
  while (!what(await handle.query(progress))) await sleep(50);
}

/** Throws when the activity is called for the first time in the stage. */
function failsOnce(stop: Stop, error: Error): Pick<Behaviour, 'before'> {
  let failed = false;
  return {
    before({ name, input }: Call) {
      if (failed || `${name} in ${input.key?.stage}` !== stop) return undefined;
      failed = true;
      return Promise.reject(error);
    },
  };
}

const withoutVerdict = { outcome: 'no-verdict', reward: undefined as never, rewardValid: false, error: 'VerifierTimeoutError' } as const;
const environmentFailed = { ...withoutVerdict, infraFailed: true, error: 'SandboxBuildFailedError' } as const;

export const scenarios: readonly Scenario[] = [
  {
    name: 'whole-run',
    shows: 'two rounds, every stage adopted',
    input: { ...small, rounds: 2, evaluation: { repeats: 2 } },
    behaviour: { dev: { Base: 0.2, 'RSR-1': 0.4, 'RPR-1': 0.5, 'RSR-2': 0.6, 'RPR-2': 0.7 } },
    ends: 'completed',
  },
  {
    name: 'not-adopted',
    shows: 'RSR-1 falls back on dev; RPR-1 goes on from Base',
    input: small,
    behaviour: { dev: { Base: 0.9, 'RSR-1': 0.1, 'RPR-1': 0.9 } },
    ends: 'completed',
  },
  { name: 'nothing-kept', shows: 'RSR-1 has nothing to train on and ends early', input: small, behaviour: { kept: 0 }, ends: 'completed' },
  {
    name: 'stop-rule',
    shows: 'a stop rule ends RPR-1 after its first iteration',
    input: small,
    behaviour: { stop: { 'RPR-1/ppo-1': { rule: 'maxKl', value: 0.5, limit: 0.2 } } },
    ends: 'completed',
  },
  {
    name: 'numerical-error',
    shows: 'a loss that is not finite ends RPR-1 with the models of the iteration before',
    input: small,
    behaviour: { numericalError: 'RPR-1/ppo-2' },
    ends: 'completed',
  },
  {
    name: 'rejected-tasks',
    shows: 'the gate rejects tasks, which are left out',
    input: small,
    behaviour: { rejected: ['core/core-1', 'train/train-2'] },
    ends: 'completed',
  },
  {
    name: 'retried-activities',
    shows: 'a fine-tuning fails once and is tried again',
    input: small,
    behaviour: failsOnce('fineTuneActor in RSR-1', new Error('the trainer died')),
    ends: 'completed',
  },
  {
    name: 'continue-as-new',
    shows: 'a rollout of 66 chunks in two executions, with a pause',
    input: { ...small, rollout: { chunkSize: 1, chunksInFlight: 4 }, rsr: { samplesPerTask: 10 } },
    holds: ['rollout in RSR-1'],
    async drive({ handle, held, release }) {
      await held('rollout in RSR-1');
      await handle.executeUpdate(pause);
      release('rollout in RSR-1');
      await sleep(1_000);
      await handle.executeUpdate(resume);
    },
    ends: 'completed',
  },
  {
    name: 'many-iterations',
    shows: 'a PPO of 34 iterations, in two executions',
    input: { ...small, rpr: { ...small.rpr, iterations: [34] } },
    ends: 'completed',
  },
  {
    name: 'paused-by-updates',
    shows: 'pause and resume at every activity, by updates to the run',
    input: small,
    holds: PAUSES,
    drive: pauses('updates'),
    ends: 'completed',
  },
  {
    name: 'paused-by-signals',
    shows: 'pause and resume at every activity, by signals to the run',
    input: small,
    holds: PAUSES,
    drive: pauses('signals'),
    ends: 'completed',
  },
  {
    name: 'approvals',
    shows: 'each stage waits for approval; one is approved in advance, one approval is refused',
    input: { ...small, requireApproval: true },
    async drive({ handle }) {
      await shows(handle, ({ status }) => status === 'waiting-for-approval');
      await handle.executeUpdate(approveStage, { args: [{ stage: 'RSR-7' }] }).catch(() => undefined);
      await handle.executeUpdate(approveStage, { args: [{ stage: 'RPR-1' }] });
      await handle.executeUpdate(approveStage, { args: [{}] });
    },
    ends: 'completed',
  },
  {
    name: 'reset',
    shows: 'reset to the start of RPR-1 while it is at work: the stages before it are found finished, its open child is replaced',
    input: small,
    holds: ['verify in RPR-1'],
    async drive({ held, release, resetTo }) {
      await held('verify in RPR-1');
      await resetTo('RPR-1');
      release('verify in RPR-1');
    },
    ends: 'completed',
  },
  {
    name: 'reuse',
    shows: 'the same configuration again: every stage is found finished',
    input: { ...small, reuse: 'any' },
    reuses: { scenario: 'not-adopted', stages: ['Base', 'RSR-1', 'RPR-1'] },
    ends: 'completed',
  },
  {
    name: 'fork',
    shows: 'a run that takes Base and RSR-1 over from another one',
    input: { ...small, fork: { run: 'whole-run', from: 'RPR-1' } },
    reuses: { scenario: 'whole-run', stages: ['Base', 'RSR-1'] },
    ends: 'completed',
  },
  {
    name: 'cancelled',
    shows: 'cancelled during a rollout, with containers to sweep',
    input: { ...small, sandbox: 'docker' },
    holds: ['rollout in RSR-1'],
    async drive({ handle, held, release }) {
      await held('rollout in RSR-1');
      await handle.cancel();
      await sleep(1_000);
      release('rollout in RSR-1');
    },
    ends: 'cancelled',
  },
  {
    name: 'cancelled-in-training',
    shows: 'cancelled during an iteration of PPO',
    input: small,
    holds: ['jointPpo in RPR-1'],
    async drive({ handle, held, release }) {
      await held('jointPpo in RPR-1');
      await handle.cancel();
      await sleep(1_000);
      release('jointPpo in RPR-1');
    },
    ends: 'cancelled',
  },
  {
    name: 'cancelled-waiting',
    shows: 'cancelled while it waits for an approval',
    input: { ...small, requireApproval: true },
    async drive({ handle }) {
      await shows(handle, ({ status }) => status === 'waiting-for-approval');
      await handle.cancel();
    },
    ends: 'cancelled',
  },
  {
    name: 'failed-training',
    shows: 'a loss that is not finite in fine-tuning fails the run',
    input: small,
    behaviour: failsOnce('fineTuneActor in RSR-1', ApplicationFailure.nonRetryable('loss is NaN at step 2', 'NumericalError')),
    ends: 'failed',
  },
  {
    name: 'no-task-usable',
    shows: 'the gate rejects every training task',
    input: small,
    behaviour: { rejected: [0, 1, 2, 3, 4, 5].map((index) => `train/train-${index}`) },
    ends: 'failed',
  },
  {
    name: 'job',
    shows: 'episodes outside a run: 410 trials in two executions, some without verdict',
    workflow: 'taskEpisodes',
    input: { dataset: 'some/tasks', sandbox: 'embedded', concurrency: 50 },
    behaviour: { trials: 410, trial: (index) => (index % 50 === 0 ? withoutVerdict : {}) },
    ends: 'completed',
  },
  {
    name: 'job-paused',
    shows: 'a job that pauses because its environments fail, and one pause and resume by a person after it',
    workflow: 'taskEpisodes',
    input: { dataset: 'some/tasks', sandbox: 'docker', concurrency: 1, agent: 'policy:models/tiny-base' },
    behaviour: { trials: 9, trial: (index) => (index < 5 ? environmentFailed : {}) },
    async drive({ handle }) {
      while ((await handle.query(job)).status !== 'paused') await sleep(50);
      await handle.executeUpdate(resume);
      await handle.executeUpdate(pause).catch(() => undefined);
      await handle.executeUpdate(resume).catch(() => undefined);
    },
    ends: 'completed',
  },
  {
    name: 'job-cancelled',
    shows: 'a job that is cancelled during its trials, with containers to sweep',
    workflow: 'taskEpisodes',
    input: { dataset: 'some/tasks', sandbox: 'docker' },
    holds: ['runTrial in Base'],
    async drive({ handle, held, release }) {
      await held('runTrial in Base');
      await handle.cancel();
      await sleep(1_000);
      release('runTrial in Base');
    },
    ends: 'cancelled',
  },
  { name: 'job-invalid-input', shows: 'a job without a dataset', workflow: 'taskEpisodes', input: {}, ends: 'failed' },
  { name: 'invalid-input', shows: 'an input that is no configuration', input: { rsr: { epoch: 1 } }, ends: 'failed' },
];
