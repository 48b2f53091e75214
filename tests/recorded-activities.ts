/**
 * Activities that record what workflows ask of them and answer at once: Temporal's own seam for testing workflow logic.
 * Only for that: the real ones have tests of their own, and the smoke run goes through all of them.
 */
import { createHash } from 'node:crypto';
import { ApplicationFailure } from '@temporalio/common';
import type { ArtifactKind, ArtifactRef } from '../records/types.ts';
import type { PpoMetrics } from '../policy/types.ts';
import type { TrialSummary } from '../workflows/job-contract.ts';
import type { EvaluateResult, GpuActivities, RolloutActivities, StageResult, SuiteListing, TaskListing } from '../workflows/contract.ts';

export interface Call {
  readonly name: keyof RolloutActivities | keyof GpuActivities;
  // Each activity has its own input type; tests look at the fields that they are about.
  readonly input: Record<string, unknown> & { key?: { stage: string; purpose: string } };
}
export interface Behaviour {
  /** Dev success by stage, in [0, 1]; 0.5 where not given. */
  readonly dev?: Readonly<Record<string, number>>;
  readonly kept?: number;
  /** Stop rule of a PPO iteration, by `<stage>/<purpose>`. */
  readonly stop?: Readonly<Record<string, NonNullable<PpoMetrics['stop']>>>;
  /** `<stage>/<purpose>` of PPO iterations that leave the finite range. */
  readonly numericalError?: string;
  readonly rejected?: readonly string[];
  /** Stages that `openStage` finds finished. */
  readonly finished?: Readonly<Record<string, StageResult>>;
  /** Trials of a job; 3 where not given. Each passes unless `trial` says otherwise. */
  readonly trials?: number;
  readonly trial?: (index: number) => Partial<TrialSummary>;
  /** Awaited before an activity answers. */
  readonly before?: (call: Call) => Promise<void> | undefined;
}

export function artifact(kind: ArtifactKind, name: string): ArtifactRef {
  // Enough digits to tell them apart; the zeros keep recorded histories small.
  const sha256 = createHash('sha256').update(`${kind} ${name}`).digest('hex').slice(0, 12).padEnd(64, '0');
  return { kind, uri: `artifact:${sha256}`, sha256, bytes: 1 };
}
export function tasks(suite: string, count: number): TaskListing[] {
  return Array.from({ length: count }, (_, index) => ({
    suite,
    id: `${suite}-${index}`,
    family: `family-${index % 2}`,
    tier: 'easy',
    checksum: `${index}`,
  }));
}
export const suites: readonly SuiteListing[] = [
  { name: 'core', metric: 'strict', headline: true, tasks: tasks('core', 3) },
  { name: 'dev', metric: 'strict', headline: false, tasks: tasks('dev', 20) },
];

export function recordedActivities(behaviour: Behaviour = {}): { calls: Call[]; rollout: RolloutActivities; gpu: GpuActivities } {
  const calls: Call[] = [];
  const record = async (name: Call['name'], input: unknown): Promise<void> => {
    const call = { name, input: input as Call['input'] };
    calls.push(call);
    await behaviour.before?.(call);
  };
  const rollout: RolloutActivities = {
    async prepareRun(input) {
      await record('prepareRun', input);
      return {
        basePolicy: artifact('policy', 'base'),
        suites,
        training: tasks('train', 6),
        tasksHash: 't',
        configHash: 'c',
        codeVersion: 'v',
      };
    },
    async calibrate(input) {
      await record('calibrate', input);
      const rejected = (behaviour.rejected ?? []).map((task) => ({ task, reason: 'the reference solution: failed' }));
      return { calibration: artifact('calibration', 'all'), gatedTasks: input.tasks.length - rejected.length, rejected };
    },
    async rollout(input) {
      await record('rollout', input);
      const { key, chunk, episodes } = input;
      const name = `${key.stage}/${key.purpose}/${chunk}`;
      const count = episodes.length;
      return {
        ...{ episodes: artifact('episodes', name), tokens: artifact('tokens', name), snapshots: artifact('snapshots', name) },
        ...{ episodeCount: count, agentTokens: 10 * count, totalTokens: 100 * count, timeouts: 0 },
      };
    },
    async verify(input) {
      await record('verify', input);
      return { verdicts: artifact('verdicts', input.episodes.sha256), passed: 1, failed: 0, noVerdict: 0 };
    },
    async rewrite(input) {
      await record('rewrite', input);
      const kept = behaviour.kept ?? 2;
      const counts = { successes: 3, kept, executions: 9, dropped: { duplicate: 3 - kept } };
      return {
        runbooks: artifact('runbooks', `${input.chunk}`),
        examples: artifact('examples', `${input.key.stage}/${input.chunk}`),
        counts,
      };
    },
    async reward(input) {
      await record('reward', input);
      return { batch: artifact('batch', `${input.key.stage}/${input.key.purpose}`), episodes: 4, droppedNoVerdict: 0, meanReward: 0.5 };
    },
    async evaluate(input) {
      await record('evaluate', input);
      return evaluationOf(behaviour.dev?.[input.key.stage] ?? 0.5, input.repeats.length);
    },
    async collectChunks(input) {
      await record('collectChunks', input);
      return artifact('chunks', JSON.stringify(input.chunks));
    },
    async openStage(input) {
      await record('openStage', input);
      const finished = behaviour.finished?.[input.stage];
      return { stageKey: `key of ${input.stage}`, codeVersion: 'v', ...(finished ? { finished } : {}) };
    },
    async recordStage(input) {
      await record('recordStage', input);
      return { index: calls.filter(({ name }) => name === 'recordStage').length, hash: `record of ${input.stage}` };
    },
    async closeRun(input) {
      await record('closeRun', input);
      return { index: input.stages.length + 1, hash: 'last record' };
    },
    async sweep(input) {
      await record('sweep', input);
      return { removed: 0 };
    },
    async report(input) {
      await record('report', input);
      return { directory: `runs/${input.runKey}/report`, result: artifact('result', input.runKey) };
    },
    async openJob(input) {
      await record('openJob', input);
      const trials = behaviour.trials ?? 3;
      return {
        ...{ directory: '/data/jobs/job', source: 'some-tasks', tasks: trials, trials, plan: artifact('trials', input.config.dataset) },
        ...{ refused: [], refusedCount: 0 },
      };
    },
    async planTrials(input) {
      await record('planTrials', input);
      const places = Array.from({ length: input.count }, (_, index) => input.from + index).filter(
        (place) => place < (behaviour.trials ?? 3),
      );
      return places.map((place) => ({ task: `task-${place}`, dir: `/tasks/task-${place}`, checksum: `${place}`, sample: 0 }));
    },
    async runTrial(input) {
      await record('runTrial', input);
      const { task, sample } = input.trial;
      const passed = { outcome: 'passed', reward: 1, rewardValid: true, infraFailed: false, attempts: 1, seconds: 1 } as const;
      return { name: `${task}__0000000`, task, sample, ...passed, ...behaviour.trial?.(Number(task.slice('task-'.length))) };
    },
    async closeJob(input) {
      await record('closeJob', input);
      return { result: artifact('result', input.job.runKey) };
    },
  };
  const gpu: GpuActivities = {
    async fineTuneActor(input) {
      await record('fineTuneActor', input);
      return { actor: artifact('policy', input.key.stage), metrics: { steps: 3, tokens: 100, epochLosses: [2, 1.5] } };
    },
    async warmUpCritic(input) {
      await record('warmUpCritic', input);
      const epochs = [4, 3, 2, 1].map((valueLoss) => ({ valueLoss }));
      return {
        critic: artifact('critic', `${input.key.stage}/warm`),
        criticOptimizer: artifact('optimizer', `${input.key.stage}/warm`),
        metrics: { epochs, steps: 4 },
      };
    },
    async jointPpo(input) {
      await record('jointPpo', input);
      const name = `${input.key.stage}/${input.key.purpose}`;
      if (behaviour.numericalError === name) throw ApplicationFailure.nonRetryable('loss is NaN at step 2', 'NumericalError');
      return {
        ...{ actor: artifact('policy', name), critic: artifact('critic', name) },
        ...{ actorOptimizer: artifact('optimizer', `${name}/actor`), criticOptimizer: artifact('optimizer', `${name}/critic`) },
        metrics: ppoMetrics(behaviour.stop?.[name]),
      };
    },
  };
  return { calls, rollout, gpu };
}

function ppoMetrics(stop: PpoMetrics['stop']): PpoMetrics {
  return {
    ...{ steps: 2, policyLoss: 0.1, valueLoss: 0.2, meanReward: 0.5, successRate: 0.5, kl: 0.01, klToStart: 0.01, entropy: 1 },
    ...{ clipFraction: 0.1, gradientNorm: 1, criticGradientNorm: 1, tokensPerTurn: 7 },
    ...(stop ? { stop } : {}),
  };
}

function evaluationOf(dev: number, repeats: number): EvaluateResult {
  const score = (name: string, headline: boolean): EvaluateResult['suites'][number] => ({
    ...{ name, headline, metric: 'strict', scores: Array<number>(repeats).fill(dev), mean: dev, standardError: 0 },
  });
  return {
    ...{
      table: artifact('evaluation', `${dev}`),
      suites: [score('core', true), score('dev', false)],
      fourSuiteMean: dev,
      fourSuiteStandardError: 0,
    },
    ...{ tiers: { easy: dev }, episodes: 23 * repeats, tokens: 100, noVerdict: 0, chunks: [] },
  };
}
