/**
 * The run as text for a person at the Temporal UI: Markdown for the workflow's current details and its result, the counts of
 * one activity, and the tasks that an activity's summary names. Pure, because workflows call it.
 */
import type { ProgressCount, RunProgress, TaskListing } from './contract.ts';
import { markdownTable } from './table.ts';

export function runDetails(run: RunProgress): string {
  const now = [...(run.count ? countTexts(run.count) : []), ...(run.loss === undefined ? [] : [`loss ${run.loss.toPrecision(4)}`])];
  return [
    `**${run.status}** · profile ${run.profile} · ${run.stage} · ${run.activity}`,
    ...(now.length > 0 ? [now.join(' · ')] : []),
    ...nextStep(run),
    // The UI draws tables without space between columns, and takes no HTML: an em space.
    markdownTable(run.stages, '\u2003'),
    ...(run.reportUrl === undefined ? [] : [reportLink(run.reportUrl, run.status === 'finished')]),
  ].join('\n\n');
}

/** Markdown. The page is there only when the run has ended, and a link that leads nowhere yet must say so. */
export function reportLink(url: string, written: boolean): string {
  return written ? `[Report of this run](${url})` : `[Report](${url}), written when the run ends`;
}

/** `episodes 12/40`, `success 25 %`. Success is a share of the finished episodes, so there is none before the first. */
export function countTexts(count: ProgressCount): string[] {
  const texts = [`${count.unit} ${count.done}/${count.total}`];
  if (count.unit === 'episodes' && count.done > 0) texts.push(`success ${((100 * count.passed) / count.done).toFixed(0)} %`);
  if (count.unit === 'task groups') texts.push(`${count.kept} kept`);
  return texts;
}

/** The server refuses a summary of more than 400 bytes; a task's name may have any length. */
const LONGEST_TASK_NAME = 80;

/**
 * The tasks of an activity for its summary: `train/sort-3` for one, else the first and how many: `train/sort-3 … (4 tasks)`.
 * Tasks may repeat. With `episodes`: `train/sort-3 (8 episodes)`, `train/sort-3 … (4 tasks, 32 episodes)`.
 */
export function tasksText(tasks: readonly Pick<TaskListing, 'suite' | 'id'>[], episodes?: number): string {
  const names = [...new Set(tasks.map(({ suite, id }) => `${suite}/${id}`))];
  const first = names[0] ?? 'no task';
  const shown = first.length > LONGEST_TASK_NAME ? `${first.slice(0, LONGEST_TASK_NAME)}…` : first;
  const counts = [
    ...(names.length > 1 ? [counted(names.length, 'task')] : []),
    ...(episodes === undefined ? [] : [counted(episodes, 'episode')]),
  ];
  return `${shown}${names.length > 1 ? ' …' : ''}${counts.length > 0 ? ` (${counts.join(', ')})` : ''}`;
}

/** `1 epoch`, `2 epochs`. */
export function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`;
}

/** What a person can do where the run waits for one. */
function nextStep({ status, stage }: RunProgress): string[] {
  if (status === 'waiting-for-approval') return [`To let ${stage} start, send the update \`approveStage\` with \`{"stage": "${stage}"}\`.`];
  if (status === 'paused') return ['To go on, send the update `resume`.'];
  return [];
}
