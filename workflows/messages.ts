/**
 * Signals, queries, updates and search attributes of a run. `pause` and `resume` exist twice: as updates, which answer
 * whether they were accepted, and as signals, which children get and which the Temporal UI's signal form can send.
 */
import { defineSearchAttributeKey } from '@temporalio/common';
import { defineQuery, defineSignal, defineUpdate } from '@temporalio/workflow';
import type { ProgressSignal, RunProgress } from './contract.ts';
import type { JobProgress } from './job-contract.ts';

export const pause = defineUpdate<string>('pause');
export const resume = defineUpdate<string>('resume');
/** `{"stage": "RSR-1"}`; `{}` for the next one. Answers which stage was approved. */
export const approveStage = defineUpdate<string, [ApproveStage]>('approveStage');
export interface ApproveStage {
  readonly stage?: string;
  /** Who approves, for the ledger. */
  readonly by?: string;
}
export const pauseRun = defineSignal('pauseRun');
export const resumeRun = defineSignal('resumeRun');
export const progress = defineQuery<RunProgress>('progress');
/** Of `taskEpisodes`. */
export const job = defineQuery<JobProgress>('job');
/** From child workflows to the training run. */
export const progressSignal = defineSignal<[ProgressSignal]>('progressUpdate');

export const attributes = {
  stage: defineSearchAttributeKey('RsiStage', 'KEYWORD'),
  status: defineSearchAttributeKey('RsiStatus', 'KEYWORD'),
  policy: defineSearchAttributeKey('RsiPolicy', 'KEYWORD'),
  profile: defineSearchAttributeKey('RsiProfile', 'KEYWORD'),
  score: defineSearchAttributeKey('RsiScore', 'DOUBLE'),
};
