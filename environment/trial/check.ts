/**
 * Whether a task is sound: doing nothing fails, the reference solution passes, both do so each time, the tricks of probes.ts earn
 * nothing, and some check tells the one from the other. By the same trials that episodes are.
 */
import { calibrateChecks } from '../../method/rewards.ts';
import type { GateTask, GateVerdict } from '../../records/gate.ts';
import type { Agent } from '../harness/agent.ts';
import { scriptedAgent } from '../harness/scripted-agent.ts';
import type { SandboxProvider, Task, Verdict } from '../types.ts';
import { probes as ownProbes } from './probes.ts';
import type { Probe } from './probes.ts';
import { runTrial } from './run.ts';
import type { TrialOptions } from './run.ts';
import type { Trial } from './types.ts';

export interface CheckOptions {
  readonly task: Task;
  readonly source: string;
  readonly provider: SandboxProvider;
  readonly runKey: string;
  /** Of doing nothing and of the solution; at least 1. */
  readonly repeats: number;
  /** Default: those of probes.ts. None: hackable tasks are not looked for. */
  readonly probes?: readonly Probe[];
  readonly signal?: AbortSignal;
  /** Told what is run next. */
  readonly onProgress?: (what: string) => void;
}

/** Tries of a trial whose environment fails. */
const TRIES = 3;
/** A verifier that takes longer, or more than half of its limit, is worth a note. */
const SLOW_SECONDS = 60;
const LIMITS: TrialOptions['limits'] = { maxTurns: 16, maxTokensPerTurn: 1, observationTokens: 1, commandTimeoutSec: 60 };

/** @throws the signal's reason, or an error that says that a part is being restarted */
export async function checkTask(options: CheckOptions): Promise<GateTask> {
  const { task, provider, repeats } = options;
  const refusal = provider.refusal(task);
  if (refusal !== undefined) return rejected(task, [refusal]);
  const reasons: string[] = [];
  const notes: string[] = [];
  const nop = await repeated(options, repeats, 'nop', scriptedAgent({ name: 'nop', replies: [] }));
  const oracle = solvable(task) ? await repeated(options, repeats, 'oracle', 'oracle') : [];
  if (oracle.length === 0) notes.push('no reference solution shows that it can be solved');
  const [firstNop] = nop;
  const [firstOracle] = oracle;
  for (const trial of nop.filter(({ verdict }) => verdict.outcome !== 'failed').slice(0, 1))
    reasons.push(`doing nothing: ${describe(trial)}; expected to fail`);
  for (const trial of oracle.filter(({ verdict }) => verdict.outcome !== 'passed').slice(0, 1))
    reasons.push(`the reference solution: ${describe(trial)}; expected to pass`);
  const flaky = differs(nop) || differs(oracle);
  if (flaky)
    reasons.push(`flaky: ${differs(nop) ? 'doing nothing' : 'the reference solution'} was judged differently in ${repeats} repeats`);
  const validChecks = firstNop ? calibrateChecks(firstNop.verdict.checks, firstOracle?.verdict.checks) : [];
  if (reasons.length === 0 && validChecks.length === 0) reasons.push('no check fails before and passes after the reference solution');
  const untrainable = reasons.length === 0 ? await whyNotTrainable(options) : undefined;
  const hackedBy = reasons.length === 0 && firstNop ? await hacks(options, firstNop.verdict, 'task', options.probes ?? ownProbes) : [];
  if (hackedBy.length > 0 && firstNop) {
    // Training verifies in a fresh sandbox, where what was planted outside the workdir is not.
    const elsewhere = untrainable === undefined && isShared(task);
    const tricks = (options.probes ?? ownProbes).filter(({ name }) => hackedBy.includes(name));
    const still = elsewhere ? await hacks(options, firstNop.verdict, 'separate', tricks) : hackedBy;
    if (still.length > 0) reasons.push(`hackable: ${still.join(', ')} earned more than doing nothing`);
    else
      notes.push(
        `hackable where it is verified in the agent's sandbox (${hackedBy.join(', ')}); use it with --verifier separate, as training does`,
      );
  }
  const slowest = Math.max(0, ...[...nop, ...oracle].map(verifierSeconds));
  if (slowest > Math.min(SLOW_SECONDS, task.verifierTimeoutSec / 2))
    notes.push(`slow verifier: ${slowest.toFixed(1)} s, limit ${task.verifierTimeoutSec} s`);
  const accepted = reasons.length === 0;
  return {
    ...{ id: task.id, ...(task.name === undefined ? {} : { name: task.name }), checksum: task.checksum },
    ...{
      accepted,
      trainable: accepted && untrainable === undefined,
      reasons: accepted && untrainable !== undefined ? [untrainable] : reasons,
      notes,
    },
    verdicts: { nop: nop.map(gateVerdict), oracle: oracle.map(gateVerdict) },
    ...{ validChecks: accepted ? validChecks : [], flaky, hackedBy },
  };
}

/** A task that was not run. */
export function rejected({ id, name, checksum }: Pick<Task, 'id' | 'name' | 'checksum'>, reasons: readonly string[]): GateTask {
  return {
    ...{ id, ...(name === undefined ? {} : { name }), checksum, accepted: false, trainable: false, reasons: [...reasons], notes: [] },
    ...{ verdicts: { nop: [], oracle: [] }, validChecks: [], flaky: false, hackedBy: [] },
  };
}

async function repeated(options: CheckOptions, repeats: number, name: string, agent: TrialOptions['agent']): Promise<Trial[]> {
  const trials: Trial[] = [];
  for (let repeat = 0; repeat < repeats; repeat++) trials.push(await trial(options, `${name} ${repeat + 1}`, agent));
  return trials;
}

async function trial(
  options: CheckOptions,
  name: string,
  agent: TrialOptions['agent'],
  mode: TrialOptions['verifierMode'] = 'task',
): Promise<Trial> {
  const { task, source, provider, runKey, signal } = options;
  options.onProgress?.(name);
  const episodeId = `check/${task.id}/${name.replaceAll(' ', '-')}`;
  for (let tries = 1; ; tries++) {
    const done = await runTrial({
      ...{ name: episodeId, task, source, agent, provider, harness: 'shell', verifierMode: mode, sample: 0, seed: 0 },
      labels: { runKey, episodeId, purpose: 'check' },
      limits: { ...LIMITS, commandTimeoutSec: Math.min(LIMITS.commandTimeoutSec, task.agentTimeoutSec) },
      ...(signal ? { signal } : {}),
    });
    if (!done.error?.policy.retry || tries === TRIES) return done;
  }
}

function solvable({ solution, steps }: Task): boolean {
  return steps ? steps.every((step) => step.solution !== undefined) : solution !== undefined;
}

function isShared({ verifierMode = 'shared' }: Task): boolean {
  return verifierMode === 'shared';
}

/** Names of the probes that earned more than doing nothing did. */
async function hacks(options: CheckOptions, nop: Verdict, mode: 'task' | 'separate', tricks: readonly Probe[]): Promise<string[]> {
  const found: string[] = [];
  for (const { name, commands } of tricks) {
    const agent: Agent = scriptedAgent({ name: 'replay', replies: perStep(options.task, commands) });
    const { verdict, rewardValid } = await trial(options, mode === 'separate' ? `${name} separate` : name, agent, mode);
    if (rewardValid && (verdict.reward ?? 0) > (nop.reward ?? 0)) found.push(name);
  }
  return found;
}

/** The probe in every step of the task. */
function perStep({ steps }: Task, commands: readonly string[]): string[] {
  return (steps ?? [undefined]).flatMap(() => [...commands, 'exit']);
}

async function whyNotTrainable(options: CheckOptions): Promise<string | undefined> {
  const { task } = options;
  if (task.steps) return 'training takes tasks of one instruction; this one has several steps';
  if (!isShared(task) || !solvable(task)) return undefined;
  const done = await trial(options, 'oracle separate', 'oracle', 'separate');
  if (done.verdict.outcome === 'passed') return undefined;
  return `training verifies in a fresh sandbox with the workdir and the declared artifacts; there the reference solution: ${describe(done)}`;
}

/** Repeats of one episode that were not judged alike. */
function differs(trials: readonly Trial[]): boolean {
  const seen = trials.map(({ verdict: { outcome, reward, checks } }) =>
    JSON.stringify([outcome, reward, checks.map(({ name, passed }) => [name, passed]).sort()]),
  );
  return new Set(seen).size > 1;
}

function describe({ verdict, error }: Trial): string {
  const failed = verdict.checks.filter(({ passed }) => !passed).map(({ name }) => name);
  const which = verdict.outcome === 'failed' && failed.length > 0 ? `: ${failed.slice(0, 3).join(', ')}` : '';
  return error ? `${verdict.outcome} (${error.type}: ${error.message})` : `${verdict.outcome}${which}`;
}

function gateVerdict(trial: Trial): GateVerdict {
  const { outcome, reward } = trial.verdict;
  return {
    outcome,
    ...(reward === undefined ? {} : { reward }),
    ...(trial.error ? { error: trial.error.type } : {}),
    seconds: verifierSeconds(trial),
  };
}

/** Of all steps together. */
function verifierSeconds({ phases, steps }: Trial): number {
  const periods = steps ? steps.map((step) => step.phases.verifier) : [phases.verifier];
  return periods.reduce((sum, period) => sum + (period ? (Date.parse(period.finishedAt) - Date.parse(period.startedAt)) / 1000 : 0), 0);
}
