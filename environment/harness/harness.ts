/**
 * Episodes of training: a fresh sandbox, an agent in it until it stops, and a snapshot of what it left. The agent may be a policy
 * (`runEpisode`), a list of commands (`runCommands`) or the task's reference solution (`runOracle`). Harnesses: shell.ts, terminus.ts.
 */
import { diedByAgent } from '../control.ts';
import { resolveEnv } from '../tasks/env-templates.ts';
import { located } from '../tasks/workdir.ts';
import type {
  EpisodeCodec,
  EpisodeRecord,
  EpisodeTokens,
  HarnessName,
  Sampler,
  SandboxLabels,
  SandboxProvider,
  StopReason,
  Task,
} from '../types.ts';
import type { TurnRecord, WorkspaceSnapshot } from '../types.ts';
import { takeTrainingSnapshot } from '../verifier/training-snapshot.ts';
import type { Agent, EpisodeLimits } from './agent.ts';
import { commandClock } from './clock.ts';
import { interact } from './interact.ts';
import { runSolution } from './oracle.ts';
import { policyAgent } from './policy-agent.ts';
import { commandReplies, scriptedAgent } from './scripted-agent.ts';

export type { EpisodeLimits } from './agent.ts';

interface EpisodeBase {
  readonly episodeId: string;
  readonly suite: string;
  readonly task: Task;
  readonly harness: HarnessName;
  readonly sample: number;
  readonly seed: number;
  readonly provider: SandboxProvider;
  readonly runKey: string;
  readonly limits: EpisodeLimits;
  /** The policy's context in tokens. */
  readonly contextLength: number;
  readonly purpose?: SandboxLabels['purpose'];
  readonly workflow?: SandboxLabels['workflow'];
  /** Shown to the agent in the prompt (guided re-runs); never part of training examples. */
  readonly runbook?: string;
  readonly signal?: AbortSignal;
}
export interface EpisodeOptions extends EpisodeBase {
  readonly sampler: Sampler;
  /** SHA-256 of the policy artifact. */
  readonly policy: string;
  readonly codec: EpisodeCodec;
  readonly temperature: number;
  /** Seed of a turn's uniforms (unsigned 32 bit). */
  readonly turnSeed: (turn: number) => number;
}
export interface CommandsOptions extends EpisodeBase {
  readonly agent: 'oracle' | 'nop' | 'replay';
  /** Run in order, one a turn (`shell`) or all in one reply (`script`); the final `exit` is added. */
  readonly commands: readonly string[];
  /** Without one no tokens are recorded and no context limit applies. */
  readonly codec?: EpisodeCodec;
}
export interface EpisodeResult {
  readonly record: EpisodeRecord;
  readonly tokens: EpisodeTokens;
  readonly snapshot: WorkspaceSnapshot;
}

/**
 * Rolls out one episode of a policy in a fresh sandbox.
 * @throws InfrastructureError (sandbox, sampler), TaskError, the signal's reason, or Error when the sampler breaks its contract
 */
export async function runEpisode(options: EpisodeOptions): Promise<EpisodeResult> {
  return await run(options, policyAgent(options));
}

/** Replays commands in a fresh sandbox as the target harness would run them, and records the same tokens (log-probabilities 0). */
export async function runCommands(options: CommandsOptions): Promise<EpisodeResult> {
  const replies = commandReplies(options.harness, options.commands);
  return await run(options, scriptedAgent({ ...options, name: options.agent, replies }));
}

/** Runs the task's reference solution: /solution/solve.sh in a fresh sandbox. The task must have one. */
export async function runOracle(
  options: Omit<EpisodeBase, 'harness' | 'sample' | 'seed' | 'limits' | 'contextLength' | 'runbook'>,
): Promise<Omit<EpisodeResult, 'tokens'>> {
  const { provider, episodeId, signal } = options;
  const task = await located(provider, options.task, signal);
  if (!task.solution) throw new Error(`${task.id} has no solution/`);
  const labels = sandboxLabels(options, 'check');
  const sandbox = await provider.start(task, labels, signal);
  const cancel = signal ? { signal } : {};
  try {
    const died = (error: unknown): Promise<boolean> => diedByAgent(error, { task, provider, labels, ...cancel });
    const { turns, stopReason } = await runSolution({
      sandbox,
      task,
      env: resolveEnv(task.solutionEnv, `${task.id} [solution]`),
      diedByAgent: died,
      ...cancel,
    });
    const base = { ...options, sandbox: provider.kind, harness: 'shell', sample: 0, seed: 0 } as const;
    return {
      record: episodeRecord(base, 'oracle', turns, stopReason, { agentTokens: 0, totalTokens: 0 }),
      snapshot: await takeTrainingSnapshot(sandbox, task, episodeId, stopReason === 'sandbox-died', signal),
    };
  } finally {
    await sandbox.close();
  }
}

async function run(options: EpisodeBase, agent: Agent): Promise<EpisodeResult> {
  const { provider, harness, limits, episodeId, signal } = options;
  const task = await located(provider, options.task, signal);
  const conversation = agent.open({ episodeId, harness });
  const labels = sandboxLabels(options, 'rollout');
  const cancel = signal ? { signal } : {};
  try {
    const sandbox = await provider.start(task, labels, signal);
    try {
      const { turns, stopReason } = await interact({
        ...{ sandbox, task, harness, limits, conversation, clock: commandClock(task.agentTimeoutSec), ...cancel },
        diedByAgent: (error) => diedByAgent(error, { task, provider, labels, ...cancel }),
      });
      const snapshot = await takeTrainingSnapshot(sandbox, task, episodeId, stopReason === 'sandbox-died', signal);
      const { tokens = { episodeId, tokens: [], turnIds: [], logprobs: [] }, ...totals } = conversation.account();
      return { record: episodeRecord({ ...options, sandbox: provider.kind }, agent.name, turns, stopReason, totals), tokens, snapshot };
    } finally {
      await sandbox.close();
    }
  } finally {
    await conversation.close();
  }
}

function sandboxLabels(
  { runKey, episodeId, purpose, workflow }: Pick<EpisodeBase, 'runKey' | 'episodeId' | 'purpose' | 'workflow'>,
  otherwise: SandboxLabels['purpose'],
): SandboxLabels {
  return { runKey, episodeId, purpose: purpose ?? otherwise, ...(workflow ? { workflow } : {}) };
}

/** The record of an episode, its fields in the order in which they are stored. */
export function episodeRecord(
  options: Pick<EpisodeBase, 'episodeId' | 'suite' | 'task' | 'harness' | 'sample' | 'seed'> & Pick<EpisodeRecord, 'sandbox'>,
  agent: string,
  turns: readonly TurnRecord[],
  stopReason: StopReason,
  { agentTokens, totalTokens }: Pick<EpisodeRecord, 'agentTokens' | 'totalTokens'>,
): EpisodeRecord {
  const { episodeId, suite, task, harness, sandbox, sample, seed } = options;
  const { id: taskId, checksum: taskChecksum, family, tier } = task;
  return {
    ...{ episodeId, suite, taskId, taskChecksum, family, tier, harness, sandbox, agent, sample, seed },
    ...{ turns, stopReason, agentTokens, totalTokens },
  };
}
