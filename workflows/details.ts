/** The run as Markdown: shown as the workflow's current details while it runs, and kept in its result. */
import type { RunProgress } from './contract.ts';
import { markdownTable } from './table.ts';

export function runDetails(run: RunProgress): string {
  const loss = run.loss === undefined ? '' : `, loss ${run.loss.toPrecision(4)}`;
  return [
    `**${run.status}** · profile ${run.profile} · ${run.stage} · ${run.activity}`,
    `${run.episodesDone} of ${run.episodesTotal} done, ${run.successes} passed${loss}`,
    markdownTable(run.stages),
  ].join('\n\n');
}
