/**
 * A trial from start to end: a fresh sandbox, its healthcheck, the agent and the verifier, step after step, and everything that is
 * kept of it. What goes wrong is the trial's outcome, by Harbor's names and policy; only a cancellation, a bug and a part that is being restarted are thrown.
 *
 * Invariants:
 *  I1 The sandbox is closed in every outcome.
 *  I2 An error of the environment never becomes a reward: the verdict is `no-verdict`, and `rewardValid` is false.
 *  I3 The stop reason stays beside the reward: what was graded after a time-out says so.
 */
import type { Agent, EpisodeLimits } from '../harness/agent.ts';
import { episodeRecord } from '../harness/harness.ts';
import { TaskError } from '../errors.ts';
import { stepTask } from '../tasks/task.ts';
import { located } from '../tasks/workdir.ts';
import type { HarnessName, Sandbox, SandboxLabels, SandboxProvider, StopReason, Task } from '../types.ts';
import { awaitHealthy } from './healthcheck.ts';
import { errorOf, now, Phases, unjudged } from './outcome.ts';
import { combineVerdicts, reachesMinimum } from './step-verdicts.ts';
import { runStep } from './step.ts';
import type { StepResult } from './step.ts';
import type { Trial, TrialError, TrialFiles, TrialPhase, TrialStep } from './types.ts';

export interface TrialOptions {
  /** trialName() of outcome.ts. */
  readonly name: string;
  readonly task: Task;
  /** The dataset's name. */
  readonly source: string;
  /** Runs the task's own solution, step by step, or asks an agent. */
  readonly agent: 'oracle' | Agent;
  readonly harness: HarnessName;
  readonly provider: SandboxProvider;
  /** `task`: as it declares, which is `shared` where it says nothing. */
  readonly verifierMode: 'task' | 'shared' | 'separate';
  readonly labels: SandboxLabels;
  readonly limits: EpisodeLimits;
  /** The agent's time limit counts its thinking too, as in Harbor; else its commands alone. */
  readonly wallClock?: boolean;
  readonly sample: number;
  readonly seed: number;
  readonly signal?: AbortSignal;
  /** Told when a phase begins. */
  readonly onPhase?: (phase: TrialPhase) => void;
}

interface DoneStep {
  readonly name: string;
  readonly instruction: string;
  readonly result: StepResult;
}

/** Makes /logs as Harbor does: anyone may write there. */
const LOGS = 'mkdir -p /logs/agent /logs/verifier /logs/artifacts && chmod 777 /logs/agent /logs/verifier /logs/artifacts';
/** Nothing of a step's verification is there for the next step's agent. */
const AFTER_STEP = `rm -rf /tests /logs/verifier && ${LOGS}`;
const PREPARE_SECONDS = 60;

/** @throws the signal's reason, an error that says that a part is being restarted (activities/lost-parts.ts), or a bug */
export async function runTrial(options: TrialOptions): Promise<Trial> {
  const { task, agent, harness, labels, provider, signal } = options;
  const startedAt = now();
  const phases = new Phases(options.onPhase);
  const done: DoneStep[] = [];
  let failed: TrialError | undefined;
  const conversation = agent === 'oracle' ? undefined : agent.open({ episodeId: labels.episodeId, harness });
  try {
    const { sandbox, ...place } = await phases.time('environmentSetup', () => start(options));
    try {
      await runSteps({ ...options, ...place }, sandbox, conversation, done);
    } finally {
      await sandbox.close();
    }
  } catch (error) {
    signal?.throwIfAborted();
    failed = errorOf(error);
  } finally {
    await conversation?.close();
  }
  const { tokens, usage, ...totals } = conversation?.account() ?? { agentTokens: 0, totalTokens: 0 };
  const [only] = done;
  const verdict = failed
    ? unjudged(failed)
    : task.steps || !only
      ? combineVerdicts(
          done.map(({ name, result }) => ({ name, verdict: result.verdict })),
          task.rewardStrategy ?? 'mean',
        )
      : only.result.verdict;
  const error = failed ?? firstError(done.map(({ result }) => result.error));
  const turns = done.flatMap(({ result }) => result.turns);
  const stopReason: StopReason = failed ? 'error' : (done.at(-1)?.result.stopReason ?? 'error');
  const base = { ...options, episodeId: labels.episodeId, suite: options.source, sandbox: provider.kind };
  return {
    name: options.name,
    task: { id: task.id, ...(task.name === undefined ? {} : { name: task.name }), dir: task.dir, checksum: task.checksum },
    source: options.source,
    instruction: task.steps ? task.steps.map(({ instruction }) => instruction).join('\n\n') : task.instruction,
    record: episodeRecord(base, agent === 'oracle' ? 'oracle' : agent.name, turns, stopReason, totals),
    ...(tokens ? { tokens } : {}),
    ...(usage ? { usage } : {}),
    verdict,
    verifierMode: modeOf(options, task),
    ...(task.steps ? { steps: trialSteps(done) } : {}),
    ...(error ? { error } : {}),
    rewardValid: verdict.reward !== undefined && (error?.policy.rewardValid ?? true),
    period: { startedAt, finishedAt: now() },
    phases: { ...(task.steps ? {} : only?.result.phases), ...phases.periods },
    files: (task.steps ? undefined : only?.result.files) ?? noFiles(),
  };
}

async function start({ task: declared, provider, labels, signal }: TrialOptions): Promise<{ task: Task; sandbox: Sandbox }> {
  const refusal = provider.refusal(declared);
  if (refusal !== undefined) throw new TaskError(refusal);
  const task = await located(provider, declared, signal);
  const sandbox = await provider.start(task, labels, signal);
  try {
    await sandbox.exec(LOGS, { timeoutSec: PREPARE_SECONDS, user: 'root', ...(signal ? { signal } : {}) });
    if (task.healthcheck) await awaitHealthy(sandbox, task.healthcheck, task.id, signal);
    return { task, sandbox };
  } catch (error) {
    await sandbox.close();
    throw error;
  }
}

async function runSteps(
  options: TrialOptions,
  sandbox: Sandbox,
  conversation: ReturnType<Agent['open']> | undefined,
  done: DoneStep[],
): Promise<void> {
  const { task, signal } = options;
  for (const step of task.steps ?? [undefined]) {
    const current = step ? stepTask(task, step) : task;
    const firstTurn = done.reduce((sum, { result }) => sum + result.turns.length, 0);
    const result = await runStep({
      ...{ trial: options, sandbox, task: current, conversation, firstTurn, verifierMode: modeOf(options, current) },
      ...(step ? { step } : {}),
      phase: (phase) => options.onPhase?.(phase),
    });
    done.push({ name: step?.name ?? task.id, instruction: current.instruction, result });
    const over =
      !step || result.stopReason === 'sandbox-died' || result.error?.policy.grade === false || !reachesMinimum(step, result.verdict);
    if (over) return;
    await sandbox.exec(AFTER_STEP, { timeoutSec: PREPARE_SECONDS, user: 'root', ...(signal ? { signal } : {}) });
  }
}

function modeOf({ verifierMode }: TrialOptions, task: Task): 'shared' | 'separate' {
  return verifierMode === 'task' ? (task.verifierMode ?? 'shared') : verifierMode;
}

/** An error that makes the reward invalid before one that does not. */
function firstError(errors: readonly (TrialError | undefined)[]): TrialError | undefined {
  const all = errors.filter((error) => error !== undefined);
  return all.find(({ policy }) => !policy.rewardValid) ?? all[0];
}

function trialSteps(done: readonly DoneStep[]): TrialStep[] {
  let first = 0;
  return done.map(({ name, instruction, result: { turns, stopReason: _, ...rest } }) => {
    const place: [number, number] = [first, first + turns.length];
    first = place[1];
    return { name, instruction, turns: place, ...rest };
  });
}

function noFiles(): TrialFiles {
  return { agent: new Map(), verifier: new Map(), artifacts: new Map() };
}
