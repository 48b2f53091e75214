/**
 * The calibration artifact: which checks of each task measure the agent's work. Written once per run by the calibrate
 * activity, from a do-nothing episode and a reference-solution episode of every task (method/rewards.ts: calibrateChecks);
 * read by rewards, evaluation and the reward audit.
 */
import type { EpisodeVerdict } from '../environment/types.ts';
import { progress, type ValidCheck } from '../method/rewards.ts';

export interface TaskCalibration {
  readonly checksum: string;
  readonly family: string;
  /** Never empty: a task without valid checks is rejected by the gate. */
  readonly validChecks: readonly ValidCheck[];
}
export interface Calibration {
  readonly schema: 'terminal-rsi/calibration@1';
  /** By `taskKey`. Tasks that the gate rejected are absent. */
  readonly tasks: Readonly<Record<string, TaskCalibration>>;
}

/** `<suite>/<taskId>`: the name of a task in a Calibration. */
export function taskKey(task: { readonly suite: string; readonly taskId: string }): string {
  return `${task.suite}/${task.taskId}`;
}

/**
 * Progress of one episode in [0, 1] over its task's valid checks; undefined for an episode without a verdict.
 * @throws RangeError for a task that the calibration does not hold.
 */
export function verdictProgress(calibration: Calibration, verdict: EpisodeVerdict): number | undefined {
  if (verdict.outcome === 'no-verdict') return undefined;
  const task = calibration.tasks[taskKey(verdict)];
  if (!task)
    throw new RangeError(
      `calibration: task ${taskKey(verdict)} is not in it; expected one of its ${Object.keys(calibration.tasks).length} tasks`,
    );
  return progress(verdict.checks, task.validChecks);
}
