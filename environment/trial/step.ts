/**
 * One step of a trial (a task without steps is one): the agent at work on its instruction, what it leaves, and the verdict. Works on
 * a sandbox that has been started, and leaves it ready for the next step.
 */
import { diedByAgent } from '../control.ts';
import { TaskError } from '../errors.ts';
import type { SandboxDiedError } from '../errors.ts';
import type { Conversation } from '../harness/agent.ts';
import { commandClock, wallClock } from '../harness/clock.ts';
import { interact } from '../harness/interact.ts';
import type { Interaction } from '../harness/interact.ts';
import { runSolution } from '../harness/oracle.ts';
import { resolveEnv } from '../tasks/env-templates.ts';
import type { FileTree, Sandbox, Task, TaskStep, TurnRecord, StopReason, Verdict } from '../types.ts';
import { runCollectHooks, takeArtifacts } from '../verifier/artifacts.ts';
import { verifySeparate } from '../verifier/separate.ts';
import { verifyShared } from '../verifier/shared.ts';
import { takeSnapshot, trialExtraBytes } from '../verifier/snapshot.ts';
import type { Judged } from '../verifier/test-run.ts';
import { awaitHealthy } from './healthcheck.ts';
import { errorOf, errorOfStop, errorOfVerdict, Phases, unjudged } from './outcome.ts';
import type { TrialOptions } from './run.ts';
import type { TrialError, TrialFiles, TrialPhase, TrialStep } from './types.ts';

/** Of one file that an agent leaves in /logs/agent. */
const MAX_LOG_BYTES = 8 * 1024 * 1024;

export interface StepOptions {
  readonly trial: TrialOptions;
  readonly sandbox: Sandbox;
  /** The step as a task (`stepTask`), or the task itself. */
  readonly task: Task;
  readonly step?: TaskStep;
  /** undefined for the oracle. */
  readonly conversation: Conversation | undefined;
  readonly firstTurn: number;
  readonly verifierMode: 'shared' | 'separate';
  readonly phase: (phase: TrialPhase) => void;
}
export interface StepResult extends Omit<TrialStep, 'name' | 'instruction' | 'turns'> {
  readonly turns: readonly TurnRecord[];
  readonly stopReason: StopReason;
}

/** @throws the signal's reason, or what is no outcome of a trial (outcome.ts) */
export async function runStep(options: StepOptions): Promise<StepResult> {
  const { sandbox, task, trial } = options;
  const phases = new Phases(options.phase);
  const files: { -readonly [K in keyof TrialFiles]: FileTree } = { agent: new Map(), verifier: new Map(), artifacts: new Map() };
  const turns: TurnRecord[] = [];
  let played: Interaction = { turns, stopReason: 'error' };
  let error: TrialError | undefined;
  let verdict: Verdict | undefined;
  try {
    await phases.time('agentSetup', () => prepare(options));
    try {
      played = await phases.time('agentExecution', () => play(options, turns));
      error = errorOfStop(played.stopReason, task.agentTimeoutSec);
    } catch (thrown) {
      trial.signal?.throwIfAborted();
      error = errorOf(thrown);
      // What a model that failed had done up to there counts; what happened in a broken sandbox does not.
      if (!error.policy.grade) throw thrown;
    }
    const dead = played.stopReason === 'sandbox-died';
    if (!dead) await runCollectHooks(sandbox, task, trial.signal);
    files.agent = await agentLogs(options, played);
    files.artifacts = await takeArtifacts(sandbox, task, trial.signal ? { signal: trial.signal } : {});
    const judged = await phases.time('verifier', () => verify(options, files.artifacts, dead));
    verdict = judged.verdict;
    files.verifier = judged.files;
    error ??= errorOfVerdict(verdict);
  } catch (thrown) {
    trial.signal?.throwIfAborted();
    error = errorOf(thrown);
  }
  const { stopReason } = played;
  const found =
    verdict ??
    unjudged(error ?? { type: 'InfrastructureError', message: 'not judged', policy: { retry: true, grade: false, rewardValid: false } });
  return { turns: played.turns, stopReason, verdict: found, ...(error ? { error } : {}), phases: phases.periods, files };
}

/** The step's files, its setup.sh, its network and its healthcheck. */
async function prepare({ sandbox, task, step, trial: { signal, task: whole } }: StepOptions): Promise<void> {
  if (step) {
    await sandbox.upload(step.workdirFiles, task.workdir);
    if (step.workdirFiles.has('setup.sh')) {
      const cancel = signal ? { signal } : {};
      const run = await sandbox.exec('bash ./setup.sh', { timeoutSec: task.environment.buildTimeoutSec, ...cancel });
      if (run.exitCode !== 0 || run.timedOut) {
        const how = run.timedOut ? `took longer than ${task.environment.buildTimeoutSec} s` : `exited with ${run.exitCode}`;
        throw new TaskError(`${whole.id}: setup.sh of step ${step.name} ${how}: ${run.stderr.trim().slice(-300)}`);
      }
    }
  }
  const network = task.agentNetwork ?? (step && changesNetwork(whole) ? task.environment.network : undefined);
  if (network !== undefined) await sandbox.setNetwork(network);
  if (step && task.healthcheck) await awaitHealthy(sandbox, task.healthcheck, `${whole.id}, step ${step.name}`, signal);
}

/** Whether a step before this one may have left the sandbox with another network than the environment's. */
function changesNetwork({ steps = [] }: Task): boolean {
  return steps.some(({ agentNetwork, verifierNetwork }) => (agentNetwork ?? verifierNetwork) !== undefined);
}

/** @param turns filled while they are played: what was done before an error counts */
function play(options: StepOptions, turns: TurnRecord[]): Promise<Interaction> {
  const { sandbox, task, conversation, firstTurn, trial } = options;
  const { harness, limits, signal } = trial;
  const died = (error: SandboxDiedError): Promise<boolean> => diedByAgent(error, control(options));
  const common = { sandbox, task, diedByAgent: died, ...(signal ? { signal } : {}) };
  if (!conversation) return runSolution({ ...common, env: resolveEnv(task.solutionEnv, `${task.id} [solution]`) });
  const clock = trial.wallClock ? wallClock(task.agentTimeoutSec) : commandClock(task.agentTimeoutSec);
  return interact({ ...common, harness, limits, conversation, firstTurn, clock, turns });
}

function control({ trial: { task, provider, labels, signal } }: StepOptions): Parameters<typeof diedByAgent>[1] {
  return { task, provider, labels, ...(signal ? { signal } : {}) };
}

/** /logs/agent, and for the oracle what its script said, under Harbor's name. */
async function agentLogs({ sandbox, conversation }: StepOptions, { turns }: Interaction): Promise<FileTree> {
  const files = await sandbox.download('/logs/agent', { maxFileBytes: MAX_LOG_BYTES, onSkipped: () => undefined });
  if (conversation) return files;
  const said = turns.flatMap(({ commands }) => commands.map(({ stdout, stderr }) => `${stdout}${stderr}`)).join('');
  return new Map([...files, ['oracle.txt', { data: Buffer.from(said), mode: 0o644 }]]);
}

async function verify(options: StepOptions, artifacts: FileTree, dead: boolean): Promise<Judged> {
  const { sandbox, task, verifierMode } = options;
  const { provider, labels, signal } = options.trial;
  const cancel = signal ? { signal } : {};
  const separately = async (): Promise<Judged> => {
    const snapshot = await takeSnapshot(sandbox, task, labels.episodeId, signal, trialExtraBytes);
    return verifySeparate({ task, snapshot, artifacts, provider, labels: { ...labels, purpose: 'verify' }, ...cancel });
  };
  // Of a sandbox that its agent killed the files are left: they are judged.
  if (verifierMode === 'separate' || dead) return separately();
  // The hooks have run already.
  const { collect: _, ...judgedTask } = task;
  try {
    return await verifyShared({ task: judgedTask, sandbox, keepProcesses: task.keepProcesses === true, ...cancel });
  } catch (error) {
    if (!(await diedByAgent(error, control(options)))) throw error;
    return separately();
  }
}
