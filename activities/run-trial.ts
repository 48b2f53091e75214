/**
 * One trial of a job: run in a new sandbox, begun again where its environment failed, and written into the job's folder. A trial that
 * is there already is not run again, so that a worker that is killed neither loses a verdict nor makes one twice.
 *
 * Invariants:
 *  I1 Only failures of this very trial count as attempts, and they are on disk: a killed worker's attempt, or an engine that
 *     restarts, is none.
 *  I2 A trial that its environment failed so often as the job allows is written without a reward. A later job in the same folder tries it anew.
 */
import { activityInfo, cancellationSignal } from '@temporalio/activity';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { UserError } from '../environment/errors.ts';
import type { Agent } from '../environment/harness/agent.ts';
import { endpointAgent } from '../environment/harness/endpoint-agent.ts';
import { policyAgent } from '../environment/harness/policy-agent.ts';
import { scriptedAgent } from '../environment/harness/scripted-agent.ts';
import { trialName } from '../environment/trial/outcome.ts';
import { runTrial as runOnce } from '../environment/trial/run.ts';
import type { Trial } from '../environment/trial/types.ts';
import { deriveSeed } from '../method/seeds.ts';
import { keepTrial, readSummary, replaceTrial, triesFile } from '../records/job-folder.ts';
import { repoRoot } from '../records/paths.ts';
import { replayReplies } from '../records/replay.ts';
import type { RunTrialInput, TrialSummary } from '../workflows/job-contract.ts';
import type { RolloutDependencies } from './dependencies.ts';
import { startHeartbeat } from './heartbeat.ts';
import { Journal } from './journal.ts';
import { startingAgain } from './lost-parts.ts';
import { ownSessions } from './session-names.ts';

const FIRST_PAUSE_MS = 1_000;
const LONGEST_PAUSE_MS = 60_000;

export async function runTrial(deps: RolloutDependencies, input: RunTrialInput): Promise<TrialSummary> {
  const { job, opened, trial: planned } = input;
  const { directory } = opened;
  const { runKey, config } = job;
  const name = trialName(path.basename(directory), planned.task, planned.sample);
  const signal = cancellationSignal();
  const before = await readSummary(directory, name);
  if (before && (!before.infraFailed || before.runKey === runKey)) return withoutKey(before);
  if (before) await replaceTrial(directory, before);
  const tries = await Journal.open<string>(triesFile(directory, name), { runKey });
  let phase = 'environmentSetup';
  const beat = startHeartbeat(() => ({ task: planned.task, sample: planned.sample, phase, attempt: tries.size + 1 }));
  const started = performance.now();
  try {
    for (;;) {
      const trial = await startingAgain(signal, (restart) => once(deps, input, { name, restart, signal, onPhase: (now) => (phase = now) }));
      const failedBefore = tries.size;
      if (trial.error?.policy.retry && failedBefore + 1 < config.attempts) {
        await tries.append(`#${failedBefore + 1}`, `${trial.error.type}: ${trial.error.message}`);
        phase = 'waiting';
        await sleep(Math.min(FIRST_PAUSE_MS * 2 ** failedBefore, LONGEST_PAUSE_MS), undefined, { signal });
        continue;
      }
      const summary = { ...summaryOf(trial, planned.sample, failedBefore + 1, (performance.now() - started) / 1000), runKey };
      return withoutKey(await keepTrial(directory, trial, summary));
    }
  } finally {
    beat.stop();
    await tries.close();
  }
}

interface Attempt {
  readonly name: string;
  readonly restart: number;
  readonly signal: AbortSignal;
  readonly onPhase: (phase: string) => void;
}

async function once(deps: RolloutDependencies, { job, opened, trial }: RunTrialInput, attempt: Attempt): Promise<Trial> {
  const { config, runKey } = job;
  const { workflowExecution } = activityInfo();
  const task = await deps.task({ suite: opened.source, id: trial.task, checksum: trial.checksum, dir: trial.dir });
  return await runOnce({
    ...{ name: attempt.name, task, source: opened.source, harness: config.harness, limits: config.limits, sample: trial.sample },
    agent: await agentOf(deps, { job, opened, trial }, attempt),
    provider: deps.provider(config.sandbox),
    verifierMode: config.verifier,
    labels: { runKey, episodeId: attempt.name, purpose: 'rollout', ...(workflowExecution ? { workflow: workflowExecution } : {}) },
    // A model is given its task's time as Harbor gives it; what a policy waits for its sampler is the machine's load.
    wallClock: config.agent.startsWith('model:'),
    seed: seedOf(config.seed, trial, config.harness),
    signal: attempt.signal,
    onPhase: attempt.onPhase,
  });
}

async function agentOf(
  deps: RolloutDependencies,
  { job: { config, runKey }, opened, trial }: RunTrialInput,
  { restart }: Attempt,
): Promise<'oracle' | Agent> {
  const { agent, harness, limits, temperature } = config;
  const [kind, ...rest] = agent.split(':');
  const named = rest.join(':');
  switch (kind) {
    case 'oracle':
      return 'oracle';
    case 'nop':
      return scriptedAgent({ name: 'nop', replies: [] });
    case 'replay':
      return scriptedAgent({ name: 'replay', replies: await replayReplies(path.resolve(repoRoot, named), harness, trial.task) });
    case 'model':
      return endpointAgent({
        ...{ baseUrl: config.baseUrl ?? '', model: named, temperature, maxTokens: limits.maxTokensPerTurn },
        seed: seedOf(config.seed, trial, harness),
      });
    case 'policy': {
      const { policy } = opened;
      if (!policy) throw new UserError(`agent: the job has no artifact for ${agent}`);
      return policyAgent({
        ...(await deps.policy(await deps.store.directory(policy))),
        ...{ policy: policy.sha256, limits, temperature },
        sampler: ownSessions(deps.sampler, `${runKey}/${activityInfo().attempt}/${restart}`),
        turnSeed: (turn) => seedOf(config.seed, trial, harness, turn),
      });
    }
    default:
      throw new UserError(`agent: got ${agent}, expected oracle, nop, replay:FILE, model:NAME or policy:NAME`);
  }
}

function seedOf(seed: number, { task, sample }: RunTrialInput['trial'], harness: string, turn?: number): number {
  return deriveSeed(seed, 'episodes', task, harness, sample, ...(turn === undefined ? [] : [turn]));
}

function summaryOf({ name, task, verdict, rewardValid, error }: Trial, sample: number, attempts: number, seconds: number): TrialSummary {
  const { reward, outcome } = verdict;
  return {
    ...{ name, task: task.id, sample, outcome, rewardValid, attempts, seconds },
    ...(reward === undefined ? {} : { reward }),
    ...(error ? { error: error.type } : {}),
    // Faults of a verifier and of a task stay what they are wherever they are run.
    infraFailed:
      error !== undefined && !error.policy.rewardValid && error.type !== 'TaskError' && (error.policy.retry || !error.policy.grade),
  };
}

function withoutKey({ runKey: _, ...summary }: TrialSummary & { readonly runKey: string }): TrialSummary {
  return summary;
}
