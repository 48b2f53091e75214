/** Names and shapes of `taskEpisodes`: episodes of any agent on any dataset. Types only, as in contract.ts. */
import type { Outcome } from '../environment/types.ts';
import type { ArtifactRef } from '../records/types.ts';
import type { EpisodesConfig } from './episodes-config.ts';

/** A job of `taskEpisodes`, as its activities know it. */
export interface EpisodesJob {
  /** Of the first execution: survives continue-as-new and reset. */
  readonly runKey: string;
  readonly workflowId: string;
  readonly config: EpisodesConfig;
}
export interface OpenJobResult {
  /** Absolute; where the trials are written, in Harbor's layout. */
  readonly directory: string;
  /** The dataset's name. */
  readonly source: string;
  readonly tasks: number;
  readonly trials: number;
  /** Kind `trials`: JSON lines of PlannedTrial, in order. */
  readonly plan: ArtifactRef;
  /** Tasks that the sandbox cannot run, or that do not load; at most 20, with the reason. */
  readonly refused: readonly { readonly task: string; readonly reason: string }[];
  readonly refusedCount: number;
  /** For `policy:` agents. */
  readonly policy?: ArtifactRef;
}
/** One episode of a job. The trial's name follows from task and sample. */
export interface PlannedTrial {
  readonly task: string;
  readonly dir: string;
  readonly checksum: string;
  readonly sample: number;
}
export interface PlanTrialsInput {
  readonly plan: ArtifactRef;
  readonly from: number;
  readonly count: number;
}
export interface RunTrialInput {
  readonly job: EpisodesJob;
  readonly opened: Pick<OpenJobResult, 'directory' | 'source' | 'policy'>;
  readonly trial: PlannedTrial;
}
/** What the workflow needs of a trial; the trial itself is in the job's directory, under its name. */
export interface TrialSummary {
  readonly name: string;
  readonly task: string;
  readonly sample: number;
  readonly outcome: Outcome;
  readonly reward?: number;
  readonly rewardValid: boolean;
  readonly error?: string;
  /** The environment failed, not the agent: no verdict, and the attempts are used up. */
  readonly infraFailed: boolean;
  /** Attempts of other executions' and workers' included. */
  readonly attempts: number;
  /** From its start to its verdict. */
  readonly seconds: number;
}
export interface CloseJobInput {
  readonly job: EpisodesJob;
  readonly opened: OpenJobResult;
  /** Milliseconds since the epoch (workflow time). */
  readonly startedAt: number;
}
export interface CloseJobResult {
  /** Kind `result`: JSON of records/job-result.ts, with every trial's summary. */
  readonly result: ArtifactRef;
}
export interface JobCounts {
  readonly done: number;
  readonly passed: number;
  readonly failed: number;
  readonly noVerdict: number;
  readonly infraFailed: number;
  /** Sum of the valid rewards, and how many there are. */
  readonly rewardSum: number;
  readonly rewards: number;
  /** By type. */
  readonly errors: Readonly<Record<string, number>>;
}
/** Answer of the `job` query and content of the live table. */
export interface JobProgress {
  readonly status: 'starting' | 'running' | 'paused' | 'finished';
  /** Why it paused by itself. */
  readonly message?: string;
  readonly config: EpisodesConfig;
  readonly directory: string;
  readonly source: string;
  /** Milliseconds since the epoch (workflow time), of the first execution. */
  readonly startedAt: number;
  readonly trials: number;
  readonly refused: number;
  readonly counts: JobCounts;
  readonly running: readonly { readonly task: string; readonly sample: number; readonly since: number }[];
  /** The last ones that ended, newest first. */
  readonly recent: readonly TrialSummary[];
}
export interface TaskEpisodesResult {
  readonly directory: string;
  readonly source: string;
  readonly trials: number;
  readonly counts: JobCounts;
  readonly meanReward?: number;
  readonly infraFailedRate: number;
  readonly refused: OpenJobResult['refused'];
  readonly result: ArtifactRef;
}
/** Activities of queue `terminal-rsi` for jobs. */
export interface EpisodesActivities {
  /** Lists the dataset's tasks and writes the job's configuration. */
  openJob(input: EpisodesJob): Promise<OpenJobResult>;
  /** A stretch of the plan: thousands of trials would not fit into a history. */
  planTrials(input: PlanTrialsInput): Promise<readonly PlannedTrial[]>;
  /** One episode with its verdict, written into the job's directory. A trial that is there already is not run again. */
  runTrial(input: RunTrialInput): Promise<TrialSummary>;
  /** The job's result over all its trials. */
  closeJob(input: CloseJobInput): Promise<CloseJobResult>;
}
