/** The run as text: Markdown for the workflow's current details while it runs and for its result, and the counts of one activity. */
import type { ProgressCount, RunProgress } from './contract.ts';
import { markdownTable } from './table.ts';

export function runDetails(run: RunProgress): string {
  const now = [...(run.count ? countTexts(run.count) : []), ...(run.loss === undefined ? [] : [`loss ${run.loss.toPrecision(4)}`])];
  return [
    `**${run.status}** · profile ${run.profile} · ${run.stage} · ${run.activity}`,
    ...(now.length > 0 ? [now.join(' · ')] : []),
    markdownTable(run.stages),
  ].join('\n\n');
}

/** `episodes 12/40`, `success 25 %`. Success is a share of the finished episodes, so there is none before the first. */
export function countTexts(count: ProgressCount): string[] {
  const texts = [`${count.unit} ${count.done}/${count.total}`];
  if (count.unit === 'episodes' && count.done > 0) texts.push(`success ${((100 * count.passed) / count.done).toFixed(0)} %`);
  if (count.unit === 'task groups') texts.push(`${count.kept} kept`);
  return texts;
}
