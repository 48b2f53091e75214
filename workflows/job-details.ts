/** A job of `taskEpisodes` as text: Markdown for the workflow's current details. Pure, because the workflow calls it. */
import type { JobCounts, JobProgress, TrialSummary } from './job-contract.ts';

/** Mean of the valid rewards; undefined before the first. */
export function meanReward({ rewardSum, rewards }: JobCounts): number | undefined {
  return rewards === 0 ? undefined : rewardSum / rewards;
}

export function jobDetails(job: JobProgress): string {
  const { status, message, config, source, counts, running, recent } = job;
  return [
    `**${status}** · ${config.agent} on ${source || config.dataset} · ${config.harness} in ${config.sandbox}`,
    ...(message === undefined ? [] : [message]),
    countsText(job),
    ...(Object.keys(counts.errors).length === 0 ? [] : [`errors: ${errorsText(counts)}`]),
    ...(running.length === 0 ? [] : [`at work: ${running.map(({ task, sample }) => cell(`${task} #${sample + 1}`)).join(', ')}`]),
    ...(recent.length === 0 ? [] : [recentTable(recent)]),
    ...(status === 'paused' ? ['To go on, send the update `resume`.'] : []),
  ].join('\n\n');
}

/** `12 of 40 · 9 passed · 3 failed · mean reward 0.750`. */
export function countsText({ counts, trials, refused }: Pick<JobProgress, 'counts' | 'trials' | 'refused'>): string {
  const mean = meanReward(counts);
  return [
    `${counts.done} of ${trials}`,
    `${counts.passed} passed`,
    `${counts.failed} failed`,
    ...(counts.noVerdict > 0 ? [`${counts.noVerdict} without verdict`] : []),
    ...(counts.infraFailed > 0 ? [`${counts.infraFailed} failed for their environment`] : []),
    ...(refused > 0 ? [`${refused} tasks refused`] : []),
    ...(mean === undefined ? [] : [`mean reward ${mean.toFixed(3)}`]),
  ].join(' · ');
}

/** `AgentTimeoutError 2, VerifierTimeoutError 1`. */
export function errorsText({ errors }: JobCounts): string {
  return Object.entries(errors)
    .map(([type, count]) => `${type} ${count}`)
    .join(', ');
}

/** What became of a trial, in one word or two. */
export function stateOf({ outcome, infraFailed, error }: TrialSummary): string {
  if (infraFailed) return error ?? 'environment failed';
  return outcome === 'no-verdict' ? (error ?? outcome) : error === undefined ? outcome : `${outcome} (${error})`;
}

function recentTable(recent: readonly TrialSummary[]): string {
  const rows = recent.map((trial) => {
    const reward = trial.reward === undefined ? '–' : String(trial.reward);
    return `| ${cell(`${trial.task} #${trial.sample + 1}`)} | ${cell(stateOf(trial))} | ${reward} | ${trial.seconds.toFixed(1)} |`;
  });
  return ['| last episodes | state | reward | seconds |', '| --- | --- | ---: | ---: |', ...rows].join('\n');
}

function cell(text: string): string {
  return text.replaceAll('|', '\\|').slice(0, 100);
}
