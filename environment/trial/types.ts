/**
 * A trial: one episode of any agent on any task with its verdict and all it leaves, as `npm run episodes` and `npm run tasks` run
 * them. Training keeps rollout and verification apart (activities/rollout.ts, verify.ts); a trial is both, step after step.
 */
import type { EpisodeRecord, EpisodeTokens, FileTree, Verdict } from '../types.ts';

/** What happens after an error of this type, as Harbor's error policy says (verifier/error-policy.ts). */
export interface ErrorPolicy {
  /** The trial may be run again. */
  readonly retry: boolean;
  /** What the agent did is verified all the same. */
  readonly grade: boolean;
  /** The reward counts. */
  readonly rewardValid: boolean;
}

export interface TrialError {
  /** Harbor's class name: AgentTimeoutError, VerifierTimeoutError, SandboxBuildFailedError … */
  readonly type: string;
  readonly message: string;
  readonly policy: ErrorPolicy;
}

/** ISO 8601, UTC. */
export interface Period {
  readonly startedAt: string;
  readonly finishedAt: string;
}
export type TrialPhase = 'environmentSetup' | 'agentSetup' | 'agentExecution' | 'verifier';

/** What the model endpoint reported; sums over the turns. */
export interface TokenUsage {
  readonly promptTokens: number;
  readonly completionTokens: number;
  readonly cachedTokens: number;
}

/** What one step left; a task without steps has one, without a name. Paths are relative to /logs/agent, /logs/verifier and the artifacts' root. */
export interface TrialFiles {
  readonly agent: FileTree;
  readonly verifier: FileTree;
  readonly artifacts: FileTree;
}
export interface TrialStep {
  readonly name: string;
  /** The step's own; absent: the trial's. */
  readonly instruction?: string;
  /** Places in `record.turns`: [first, after the last). */
  readonly turns: readonly [number, number];
  readonly verdict: Verdict;
  readonly error?: TrialError;
  readonly phases: Readonly<Partial<Record<TrialPhase, Period>>>;
  readonly files: TrialFiles;
}

export interface Trial {
  /** `<task id, at most 32 characters>__<7 characters>`, from the job, the task and the sample: a repeated attempt has the same. */
  readonly name: string;
  readonly task: { readonly id: string; readonly name?: string; readonly dir: string; readonly checksum: string };
  /** The dataset's name. */
  readonly source: string;
  readonly instruction: string;
  readonly record: EpisodeRecord;
  /** Absent for agents whose tokens are not known (oracle, nop, replay, endpoints). */
  readonly tokens?: EpisodeTokens;
  readonly usage?: TokenUsage;
  /** Of the whole: of several steps the rewards' mean or the last one's. */
  readonly verdict: Verdict;
  readonly verifierMode: 'shared' | 'separate';
  readonly steps?: readonly TrialStep[];
  readonly error?: TrialError;
  readonly rewardValid: boolean;
  readonly period: Period;
  readonly phases: Readonly<Partial<Record<TrialPhase, Period>>>;
  readonly files: TrialFiles;
}
