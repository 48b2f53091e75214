/** A job of episodes on a terminal: the live view while it runs, and the table at its end. Pure. */
import Table from 'cli-table3';
import pc from 'picocolors';
import type { JobResult } from '../records/job-result.ts';
import { countsText, errorsText, stateOf } from '../workflows/job-details.ts';
import type { JobProgress, TrialSummary } from '../workflows/job-contract.ts';
import { bar, duration } from './live-table.ts';
import type { LiveView } from './live-table.ts';

/** What the server says of a pending episode: attempts that were lost with a worker, and why. */
export interface PendingTrial {
  readonly task: string;
  readonly sample: number;
  readonly phase?: string;
  readonly attempt: number;
  readonly lastFailure?: string;
}

/**
 * @param events what has ended so far, oldest first; what is new in the job's own list is added to it
 * @param now milliseconds since the epoch
 */
export function jobView(job: JobProgress, pending: readonly PendingTrial[], events: Map<string, string>, now: number): LiveView {
  for (const trial of [...job.recent].reverse()) events.set(trial.name, `${trial.name}: ${stateOf(trial)}${rewardText(trial)}`);
  return {
    lines: (columns) => jobLines(job, pending, now, columns),
    events: [...events.values()],
    line: headLine(job, now),
    ...{ now, startedAt: job.startedAt },
  };
}

function jobLines(job: JobProgress, pending: readonly PendingTrial[], now: number, columns: number): string[] {
  const { config, source, counts, trials, running, recent, message, status } = job;
  const cut = (line: string): string => (line.length > columns - 1 ? `${line.slice(0, columns - 2)}…` : line);
  const of = ({ task, sample }: { readonly task: string; readonly sample: number }): PendingTrial | undefined =>
    pending.find((trial) => trial.task === task && trial.sample === sample);
  const row = (name: string, state: string, reward: string, seconds: number): string =>
    cut(`  ${name.slice(0, 44).padEnd(44)} ${state.slice(0, 26).padEnd(26)} ${reward.padStart(7)} ${duration(seconds).padStart(8)}`);
  return [
    cut(
      `${config.agent} on ${source || config.dataset}, ${config.harness} in ${config.sandbox}${status === 'running' ? '' : ` · ${status}`}`,
    ),
    `${pc.cyan(bar(trials === 0 ? 0 : counts.done / trials, 24))}  ${cut(headLine(job, now)).slice(0, Math.max(20, columns - 27))}`,
    ...(message === undefined ? [] : [pc.yellow(cut(message))]),
    ...(Object.keys(counts.errors).length === 0 ? [] : [cut(`  errors: ${errorsText(counts)}`)]),
    pc.dim(row('episode', 'state', 'reward', 0).replace(/0:00$/, 'time')),
    ...running.slice(0, 16).map((trial) => {
      const { phase, attempt = 1, lastFailure } = of(trial) ?? {};
      const state = attempt > 1 ? `attempt ${attempt}${lastFailure ? `: ${lastFailure}` : ''}` : (phase ?? 'at work');
      return row(`${trial.task} #${trial.sample + 1}`, state, '', (now - trial.since) / 1000);
    }),
    ...recent
      .slice(0, 8)
      .map((trial) => row(`${trial.task} #${trial.sample + 1}`, stateOf(trial), rewardText(trial).trim(), trial.seconds)),
  ];
}

/** Counts, episodes a minute, and about how long it goes on. */
function headLine(job: JobProgress, now: number): string {
  const { counts, trials, startedAt, running } = job;
  const minutes = (now - startedAt) / 60_000;
  const rate = minutes > 0 ? counts.done / minutes : 0;
  const left = trials - counts.done;
  return [
    countsText(job),
    `${running.length} at work`,
    ...(counts.done > 0 ? [`${rate.toFixed(1)} episodes/min`] : []),
    ...(counts.done > 0 && left > 0 && rate > 0 ? [`about ${duration((60 * left) / rate)} left`] : []),
  ].join(' · ');
}

function rewardText({ reward, rewardValid }: Pick<TrialSummary, 'reward' | 'rewardValid'>): string {
  if (reward === undefined) return '';
  return ` ${Number.isInteger(reward) ? reward : reward.toFixed(3)}${rewardValid ? '' : ' (not counted)'}`;
}

/** The finished job: a row a task, and the sums below. */
export function resultTable(result: JobResult): string {
  const table = new Table({
    head: ['task', 'episodes', 'passed', 'mean reward', 'seconds', 'errors'],
    colAligns: ['left', 'right', 'right', 'right', 'right', 'left'],
    style: { head: [], border: [], compact: true },
  });
  for (const task of new Set(result.trials.map((trial) => trial.task))) {
    const trials = result.trials.filter((trial) => trial.task === task);
    const rewards = trials.flatMap(({ reward, rewardValid }) => (rewardValid && reward !== undefined ? [reward] : []));
    const passed = trials.filter(({ outcome }) => outcome === 'passed').length;
    const seconds = trials.reduce((sum, trial) => sum + trial.seconds, 0) / trials.length;
    const errors = [...new Set(trials.flatMap(({ error }) => error ?? []))].join(', ');
    table.push([task, trials.length, passed, mean(rewards), seconds.toFixed(1), errors]);
  }
  const { counts, infra_failed_rate: rate } = result;
  const sums = [
    `${counts.trials} episodes: ${counts.passed} passed, ${counts.failed} failed, ${counts.noVerdict} without verdict`,
    `mean reward ${result.meanReward === undefined ? '–' : result.meanReward.toFixed(3)}`,
    `infra_failed_rate ${rate.toFixed(3)}`,
  ].join('; ');
  const types = Object.entries(result.errors).map(([type, count]) => `${type}: ${count}`);
  const refused = result.refused.map(({ task, reason }) => `${task}: ${reason}`);
  return [
    table.toString(),
    pc.bold(sums),
    ...(types.length === 0 ? [] : [`Errors: ${types.join(', ')}`]),
    ...(refused.length === 0 ? [] : [`Not run:\n  ${refused.join('\n  ')}`]),
  ].join('\n');
}

function mean(values: readonly number[]): string {
  return values.length === 0 ? '–' : (values.reduce((sum, value) => sum + value, 0) / values.length).toFixed(3);
}
