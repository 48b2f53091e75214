/**
 * Names and shapes that the workflows, the activities, the workers and the clients share. Types and constants only:
 * safe inside the workflow sandbox.
 */
import type { HarnessName, SandboxKind, Tier } from '../environment/types.ts';
import type { RewriteCounts } from '../method/rewrite-counts.ts';
import type { FineTuneMetrics, PpoMetrics, WarmUpMetrics } from '../policy/types.ts';
import type { ArtifactRef } from '../records/types.ts';
import type { RunConfig } from './config.ts';
import type { EpisodesActivities } from './job-contract.ts';

export const TASK_QUEUE = 'terminal-rsi';
export const GPU_TASK_QUEUE = 'terminal-rsi-gpu';

/** Custom search attributes of every run; the workers register what the server lacks. */
export const SEARCH_ATTRIBUTES = {
  RsiStage: 'Keyword',
  RsiStatus: 'Keyword',
  /** First 12 hex digits of the current policy's SHA-256. */
  RsiPolicy: 'Keyword',
  RsiProfile: 'Keyword',
  /** Four-suite mean of the last evaluation, in percent. */
  RsiScore: 'Double',
} as const;

/** `Base`, `RSR-1`, `RPR-1`, `RSR-2`, … */
export type StageName = string;

/** `trainingRun` takes any part of the configuration; what is missing comes from the profile. */
export type TrainingRunInput = { [K in keyof RunConfig]?: unknown };

/** `strict`: share of episodes that passed; `process`: mean share of valid checks that passed. */
export type SuiteMetric = 'strict' | 'process';
/** The suites are the four in the roles of the paper's Terminal-Bench suites, then long-horizon and workflow-rebuild, then `dev` for adoption. */
export interface SuiteListing {
  readonly name: string;
  readonly metric: SuiteMetric;
  /** Counts in the four-suite mean. */
  readonly headline: boolean;
  readonly tasks: readonly TaskListing[];
}
export interface TaskListing {
  readonly suite: string;
  readonly id: string;
  readonly family: string;
  readonly tier: Tier;
  readonly checksum: string;
  /** Absolute; absent for the built-in suites, whose place each worker knows. */
  readonly dir?: string;
}

export interface EpisodeRequest {
  readonly task: TaskListing;
  readonly harness: HarnessName;
  readonly sample: number;
}

/** The purpose of a stage's n-th evaluation is this and n. */
export const EVALUATION_PURPOSE = 'evaluation-';

/** Where a batch of episodes belongs; the root of every seed and of every artifact key. */
export interface BatchKey {
  /** `originalExecutionRunId` of the training run: survives a workflow reset. */
  readonly runKey: string;
  readonly stage: StageName;
  /** e.g. `rollout`, `evaluation-2`, `ppo-5`, `warm-up`. */
  readonly purpose: string;
}

export interface RolloutInput {
  readonly key: BatchKey;
  readonly chunk: number;
  readonly runSeed: number;
  readonly policy: ArtifactRef;
  readonly sandbox: SandboxKind;
  readonly temperature: number;
  readonly rollout: RunConfig['rollout'];
  readonly episodes: readonly EpisodeRequest[];
}
export interface RolloutResult {
  readonly episodes: ArtifactRef;
  readonly tokens: ArtifactRef;
  readonly snapshots: ArtifactRef;
  readonly episodeCount: number;
  readonly agentTokens: number;
  readonly totalTokens: number;
  /** Commands of the agents that ran into a time limit: the one thing in an episode that a slow machine can change. */
  readonly timeouts: number;
}
export interface VerifyInput {
  readonly key: BatchKey;
  readonly chunk: number;
  readonly sandbox: SandboxKind;
  readonly episodes: ArtifactRef;
  readonly snapshots: ArtifactRef;
  /** `<suite>/<task>` → directory, for tasks that are not of the built-in suites (absent when there are none). */
  readonly directories?: Readonly<Record<string, string>>;
}
export interface VerifyResult {
  readonly verdicts: ArtifactRef;
  readonly passed: number;
  readonly failed: number;
  readonly noVerdict: number;
}
/** `samples` episodes of each task in one harness. */
export interface EpisodeGroup {
  readonly tasks: readonly TaskListing[];
  readonly harness: HarnessName;
  readonly samples: number;
}
export interface EpisodeBatchInput {
  readonly key: BatchKey;
  /** Workflow id of the training run, which gets the progress signals. */
  readonly root: string;
  readonly runSeed: number;
  readonly policy: ArtifactRef;
  readonly sandbox: SandboxKind;
  readonly temperature: number;
  readonly rollout: RunConfig['rollout'];
  readonly groups: readonly EpisodeGroup[];
  /** At most this many progress signals: each costs the training run's history up to four events. */
  readonly signals: number;
  /** Where a continued execution of a large batch goes on. */
  readonly resume?: { readonly nextChunk: number; readonly result: EpisodeBatchResult; readonly paused: boolean };
}
export interface EpisodeCounts {
  readonly episodes: number;
  readonly passed: number;
  readonly failed: number;
  readonly noVerdict: number;
  readonly agentTokens: number;
  readonly totalTokens: number;
  readonly timeouts: number;
}
export interface EpisodeBatchResult {
  /** Kind `chunks`: JSON lines of ChunkResult, in order; a large batch has several parts. */
  readonly chunks: readonly ArtifactRef[];
  readonly counts: EpisodeCounts;
}
export interface CollectChunksInput {
  readonly key: BatchKey;
  readonly chunks: readonly ChunkResult[];
}

/** What every stage workflow gets. */
export interface StageInput {
  readonly root: string;
  readonly runKey: string;
  readonly stage: StageName;
  /** 1-based; picks the round's learning rates, reward and iterations. */
  readonly round: number;
  readonly config: RunConfig;
  readonly policy: ArtifactRef;
  readonly training: readonly TaskListing[];
}
export interface RprStageInput extends StageInput {
  /** The critic of the previous RPR stage; its weights alone are inherited. */
  readonly critic?: ArtifactRef;
  readonly calibration: ArtifactRef;
  /** Where a continued execution of a stage of many iterations goes on. */
  readonly resume?: RprProgress;
}
export interface RprProgress {
  /** The iteration to go on with, from 1. */
  readonly next: number;
  readonly models: Pick<PpoResult, 'actor' | 'critic' | 'criticOptimizer'> & Partial<Pick<PpoResult, 'actorOptimizer'>>;
  readonly warmUp: WarmUpMetrics;
  readonly ppo: readonly PpoMetrics[];
  readonly batches: readonly StageBatch[];
  readonly counts: EpisodeCounts;
  readonly paused: boolean;
}
/** What a stage trained, before it is evaluated and adopted or not. */
export type TrainedStage = Omit<StageResult, 'adopted' | 'decision' | 'decidedBy' | 'evaluation' | 'seconds' | 'record'>;
export interface EvaluationInput {
  readonly root: string;
  readonly runKey: string;
  readonly stage: StageName;
  readonly config: RunConfig;
  readonly policy: ArtifactRef;
  readonly suites: readonly SuiteListing[];
  readonly calibration: ArtifactRef;
}

/** One rolled-out and verified chunk, a line of a `chunks` artifact. */
export interface ChunkResult {
  readonly rollout: RolloutResult;
  readonly verify: VerifyResult;
}

export interface CalibrateInput {
  readonly runKey: string;
  readonly sandbox: SandboxKind;
  readonly tasks: readonly TaskListing[];
}
export interface CalibrateResult {
  /** JSON: the valid checks of every task that passed the gate (records/calibration.ts). */
  readonly calibration: ArtifactRef;
  readonly gatedTasks: number;
  readonly rejected: readonly { readonly task: string; readonly reason: string }[];
}

export interface RewriteInput {
  readonly key: BatchKey;
  readonly chunk: number;
  readonly sandbox: SandboxKind;
  readonly chunks: readonly ArtifactRef[];
  /** Places in the list of chunks that hold episodes of `tasks`. */
  readonly places: readonly number[];
  /** Only successes of these tasks are rewritten here: one activity per group of tasks. */
  readonly tasks: readonly TaskListing[];
  /** Whose tokenizer the examples are written with, and whose context they must fit. */
  readonly policy: ArtifactRef;
  readonly keptPerTask: number;
  readonly rollout: RunConfig['rollout'];
}
export interface RewriteResult {
  readonly runbooks: ArtifactRef;
  readonly examples: ArtifactRef;
  readonly counts: RewriteCounts;
}
export interface FineTuneActivityInput {
  readonly key: BatchKey;
  readonly runSeed: number;
  readonly actor: ArtifactRef;
  readonly examples: readonly ArtifactRef[];
  readonly epochs: number;
  readonly sequencesPerStep: number;
  readonly learningRate: number;
}
export interface FineTuneResult {
  readonly actor: ArtifactRef;
  readonly metrics: FineTuneMetrics;
}

export interface RewardInput {
  readonly key: BatchKey;
  readonly chunks: readonly ArtifactRef[];
  /** Episodes whose mean progress per family calibrates FDR: the stage's warm-up batch, so that the scale is fixed over the stage. */
  readonly familyChunks: readonly ArtifactRef[];
  readonly calibration: ArtifactRef;
  readonly reward: 'fdr' | 'spr';
  readonly settings: RunConfig['reward'];
}
export interface RewardResult {
  readonly batch: ArtifactRef;
  readonly episodes: number;
  readonly droppedNoVerdict: number;
  readonly meanReward: number;
}

export interface WarmUpActivityInput {
  readonly key: BatchKey;
  readonly runSeed: number;
  readonly actor: ArtifactRef;
  /** undefined in the first RPR stage. */
  readonly critic?: ArtifactRef;
  readonly batch: ArtifactRef;
  readonly rpr: RunConfig['rpr'];
  readonly learningRate: number;
}
export interface WarmUpResult {
  readonly critic: ArtifactRef;
  readonly criticOptimizer: ArtifactRef;
  readonly metrics: WarmUpMetrics;
}

export interface PpoActivityInput {
  readonly key: BatchKey;
  readonly iteration: number;
  readonly runSeed: number;
  readonly actor: ArtifactRef;
  readonly critic: ArtifactRef;
  readonly actorOptimizer?: ArtifactRef;
  readonly criticOptimizer?: ArtifactRef;
  /** The stage's starting policy. */
  readonly reference: ArtifactRef;
  readonly batch: ArtifactRef;
  readonly rpr: RunConfig['rpr'];
  readonly actorLearningRate: number;
  readonly criticLearningRate: number;
  readonly initialTokensPerTurn?: number;
}
export interface PpoResult {
  readonly actor: ArtifactRef;
  readonly critic: ArtifactRef;
  readonly actorOptimizer: ArtifactRef;
  readonly criticOptimizer: ArtifactRef;
  readonly metrics: PpoMetrics;
}

export interface EvaluateInput {
  readonly key: BatchKey;
  readonly policy: ArtifactRef;
  readonly suites: readonly SuiteListing[];
  readonly calibration: ArtifactRef;
  /** One entry per repeat. */
  readonly repeats: readonly (readonly ArtifactRef[])[];
}
export interface SuiteScore {
  readonly name: string;
  readonly metric: SuiteMetric;
  readonly headline: boolean;
  /** One score per repeat, in [0, 1]. */
  readonly scores: readonly number[];
  readonly mean: number;
  /** Standard error over the repeats; 0 with one repeat. */
  readonly standardError: number;
}
export interface EvaluateResult {
  /** JSON: EvaluationTable with per-task numbers (records/evaluation). */
  readonly table: ArtifactRef;
  readonly suites: readonly SuiteScore[];
  readonly fourSuiteMean: number;
  readonly fourSuiteStandardError: number;
  readonly tiers: Readonly<Partial<Record<Tier, number>>>;
  readonly episodes: number;
  readonly tokens: number;
  readonly noVerdict: number;
  /** The evaluated chunks of all repeats, one after the other. */
  readonly chunks: readonly ArtifactRef[];
}

/** One stage of a finished or running run, as it stands in the workflow's result. */
export interface StageResult {
  readonly name: StageName;
  readonly kind: StageKind;
  readonly adopted: boolean;
  readonly decision: string;
  /** Who let the stage start and who decided on its adoption: `rule`, or the name that came with `approveStage`. */
  readonly decidedBy: { readonly start: string; readonly adoption: string };
  /** What the stage trained, adopted or not; the run goes on with it only if `adopted`. */
  readonly policy: ArtifactRef;
  readonly critic?: ArtifactRef;
  /** Why a stage ended before its configured end: a stop rule, or nothing to train on. */
  readonly stopped?: string;
  readonly evaluation: EvaluateResult;
  /** Training episodes of the stage, evaluation not counted. */
  readonly counts: EpisodeCounts;
  readonly rewrite?: RewriteCounts;
  readonly fineTune?: FineTuneMetrics;
  readonly warmUp?: WarmUpMetrics;
  readonly ppo?: readonly PpoMetrics[];
  readonly reward?: 'fdr' | 'spr';
  /** What the stage made on the way to its policy. */
  readonly batches: readonly StageBatch[];
  readonly runbooks: readonly ArtifactRef[];
  readonly examples: readonly ArtifactRef[];
  readonly seconds: number;
  /** Its place in the run's ledger. */
  readonly record: RecordRef;
}
export type StageKind = 'base' | 'rsr' | 'rpr';
/** One batch of training episodes; `rewarded` (kind `batch`) is what PPO or the critic warm-up trained on. */
export interface StageBatch {
  readonly purpose: string;
  readonly chunks: readonly ArtifactRef[];
  readonly rewarded?: ArtifactRef;
  readonly meanReward?: number;
  readonly droppedNoVerdict?: number;
}
/** A record of a ledger (records/ledger.ts). `reusedFrom` names the run whose finished stage this is. */
export interface RecordRef {
  readonly index: number;
  readonly hash: string;
  readonly reusedFrom?: { readonly runKey: string; readonly index: number; readonly hash: string };
}
export interface TrainingRunResult {
  readonly runKey: string;
  readonly config: RunConfig;
  readonly stages: readonly StageResult[];
  readonly finalPolicy: ArtifactRef;
  /** Directory of report.html and result.json, relative to the data folder. */
  readonly report: string;
  /** Address of the report page, where a status server is up. */
  readonly reportUrl?: string;
  /** Last record of the ledger: whoever has this hash can prove every record before it. */
  readonly ledger: RecordRef;
  /** The run's table as Markdown. */
  readonly table: string;
}

/** Answer of the `progress` query and content of the live table. */
export interface RunProgress {
  readonly runKey: string;
  readonly profile: string;
  readonly status: 'starting' | 'running' | 'paused' | 'waiting-for-approval' | 'finished';
  readonly stage: StageName;
  readonly activity: string;
  /** How far `activity` is; absent while that is not known. */
  readonly count?: ProgressCount;
  /** Of the last training activity of the stage that has ended. */
  readonly loss?: number;
  /** Milliseconds since the epoch (workflow time). */
  readonly startedAt: number;
  readonly stages: readonly {
    readonly name: StageName;
    readonly adopted: boolean;
    readonly reused: boolean;
    readonly fourSuiteMean: number;
    readonly standardError: number;
    readonly suites: readonly SuiteScore[];
  }[];
  /** All stages of the run in order, for "time left". */
  readonly plannedStages: readonly StageName[];
  /** Of PrepareRunResult; absent before the run is prepared. */
  readonly reportUrl?: string;
}

/** Sent by child workflows to the training run when an activity begins, after chunks, and after training activities. */
export interface ProgressSignal {
  readonly stage: StageName;
  readonly activity: string;
  readonly count?: ProgressCount;
  readonly loss?: number;
}
/** Each activity counts in its own unit; only episodes pass or fail. */
export type ProgressCount =
  | { readonly unit: 'episodes'; readonly done: number; readonly total: number; readonly passed: number }
  | { readonly unit: 'task groups'; readonly done: number; readonly total: number; readonly kept: number }
  | { readonly unit: 'epochs' | 'iterations'; readonly done: number; readonly total: number };

export interface PrepareRunInput {
  readonly runKey: string;
  readonly workflowId: string;
  readonly config: RunConfig;
}
export interface PrepareRunResult {
  readonly basePolicy: ArtifactRef;
  readonly suites: readonly SuiteListing[];
  readonly training: readonly TaskListing[];
  /** Hash of the listings above: what a stage could draw from. */
  readonly tasksHash: string;
  readonly configHash: string;
  readonly codeVersion: string;
  /** Where a browser finds the run's report; absent where no worker serves it. From the worker, because a workflow must not read settings. */
  readonly reportUrl?: string;
}
/** What decides a stage's outcome, beside code and configuration. */
export interface StageInputs {
  readonly policy: ArtifactRef;
  readonly critic?: ArtifactRef;
  readonly calibration: ArtifactRef;
  readonly tasksHash: string;
  /** Evaluation table of the last adopted stage, which adoption compares with. */
  readonly reference?: ArtifactRef;
}
export interface OpenStageInput {
  readonly runKey: string;
  readonly stage: StageName;
  readonly kind: StageKind;
  /** 0 for Base. */
  readonly round: number;
  readonly config: RunConfig;
  readonly inputs: StageInputs;
}
export interface OpenStageResult {
  /** Hash of the inputs, of the settings that the stage uses, and of the code: equal keys give equal stages. */
  readonly stageKey: string;
  readonly codeVersion: string;
  /** The finished stage of that key, or the one that a fork takes over; recorded already. */
  readonly finished?: StageResult;
}
export interface RecordStageInput extends OpenStageInput {
  readonly opened: Omit<OpenStageResult, 'finished'>;
  readonly result: Omit<StageResult, 'record'>;
  /** Of the training run, whose children's histories are stored with the record. */
  readonly workflowId: string;
  /** Milliseconds since the epoch (workflow time). */
  readonly startedAt: number;
}
export interface CloseRunInput {
  readonly runKey: string;
  readonly workflowId: string;
  readonly finalPolicy: ArtifactRef;
  readonly stages: readonly RecordRef[];
  readonly result: ArtifactRef;
}
export interface ReportInput {
  readonly runKey: string;
  readonly workflowId: string;
  readonly config: RunConfig;
  readonly stages: readonly StageResult[];
  readonly calibration: ArtifactRef;
  readonly wallSeconds: number;
}
export interface ReportResult {
  readonly directory: string;
  readonly result: ArtifactRef;
}

export interface SweepInput {
  readonly runKey: string;
  readonly sandbox: SandboxKind;
}
export interface SweepResult {
  readonly removed: number;
}

/** Activities of queue `terminal-rsi`. */
export interface RolloutActivities extends EpisodesActivities {
  prepareRun(input: PrepareRunInput): Promise<PrepareRunResult>;
  calibrate(input: CalibrateInput): Promise<CalibrateResult>;
  rollout(input: RolloutInput): Promise<RolloutResult>;
  verify(input: VerifyInput): Promise<VerifyResult>;
  rewrite(input: RewriteInput): Promise<RewriteResult>;
  reward(input: RewardInput): Promise<RewardResult>;
  evaluate(input: EvaluateInput): Promise<EvaluateResult>;
  report(input: ReportInput): Promise<ReportResult>;
  /** Stores the chunks of a batch, so that histories carry references only. */
  collectChunks(input: CollectChunksInput): Promise<ArtifactRef>;
  /** Before a stage: its key, and whether it is finished already. */
  openStage(input: OpenStageInput): Promise<OpenStageResult>;
  /** After a stage: its record in the ledger, with the histories of its workflows. */
  recordStage(input: RecordStageInput): Promise<RecordRef>;
  closeRun(input: CloseRunInput): Promise<RecordRef>;
  /** Removes the run's containers that a killed worker left behind. */
  sweep(input: SweepInput): Promise<SweepResult>;
}
/** Activities of queue `terminal-rsi-gpu`: the dedicated worker with one slot. */
export interface GpuActivities {
  fineTuneActor(input: FineTuneActivityInput): Promise<FineTuneResult>;
  warmUpCritic(input: WarmUpActivityInput): Promise<WarmUpResult>;
  jointPpo(input: PpoActivityInput): Promise<PpoResult>;
}
