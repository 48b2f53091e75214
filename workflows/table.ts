/**
 * A run's results as a table, suites down and stages across, in percent with the standard error over the repeats. Pure and
 * free of I/O, because workflows show it in their current details; the terminal and the report print the same cells.
 */
import type { RunProgress, StageResult } from './contract.ts';

/** What the table needs of a stage: the shape of `RunProgress.stages`. */
export type TableStage = RunProgress['stages'][number];

export function tableStage(stage: Pick<StageResult, 'name' | 'adopted' | 'evaluation' | 'record'>): TableStage {
  return {
    name: stage.name,
    adopted: stage.adopted,
    reused: stage.record.reusedFrom !== undefined,
    fourSuiteMean: stage.evaluation.fourSuiteMean,
    standardError: stage.evaluation.fourSuiteStandardError,
    suites: stage.evaluation.suites,
  };
}

/** `33.3 ± 1.2` for a share of 0.333 with standard error 0.012; `33.3` without one. */
export function percent(mean: number, standardError?: number): string {
  const value = (100 * mean).toFixed(1);
  return standardError === undefined ? value : `${value} ± ${(100 * standardError).toFixed(1)}`;
}

export interface TableCells {
  readonly header: readonly string[];
  /** One row a suite, in the order of the first stage, and the four-suite mean last. */
  readonly rows: readonly (readonly string[])[];
  readonly footnotes: readonly string[];
}

/** The cells of the suite × stage table. Suites that count in the four-suite mean carry a `*`. */
export function tableCells(stages: readonly TableStage[]): TableCells {
  const suites = stages[0]?.suites ?? [];
  const repeats = Math.max(0, ...suites.map((suite) => suite.scores.length));
  // One evaluation has no standard error; printing ± 0.0 would claim certainty.
  const cell = (mean: number, standardError: number): string => percent(mean, repeats > 1 ? standardError : undefined);
  const rows = suites.map((suite) => [
    `${suite.name}${suite.headline ? '*' : ''}${suite.metric === 'process' ? ' (process)' : ''}`,
    ...stages.map((stage) => {
      const score = stage.suites.find(({ name }) => name === suite.name);
      return score ? cell(score.mean, score.standardError) : '–';
    }),
  ]);
  rows.push(['four-suite mean', ...stages.map((stage) => cell(stage.fourSuiteMean, stage.standardError))]);
  const footnotes = [
    `Percent, ${repeats > 1 ? `mean ± standard error of ${repeats} evaluations` : 'one evaluation'}. * counts in the four-suite mean.`,
  ];
  if (stages.some((stage) => !stage.adopted)) footnotes.push('† not adopted: the next stage starts from the last adopted one.');
  if (stages.some((stage) => stage.reused))
    footnotes.push('‡ reused: finished before with the same inputs, code and settings, or taken over by a fork.');
  const title = ({ name, adopted, reused }: TableStage): string => `${name}${adopted ? '' : ' †'}${reused ? ' ‡' : ''}`;
  return { header: ['suite, %', ...stages.map(title)], rows, footnotes };
}

/** GitHub's Markdown; one line of text while no stage has been evaluated. `gap` goes before each column of numbers. */
export function markdownTable(stages: readonly TableStage[], gap = ''): string {
  if (stages.length === 0) return 'No stage has been evaluated yet.';
  const { header, rows, footnotes } = tableCells(stages);
  const text = (cell: string): string => cell.replaceAll('|', '\\|').replaceAll('*', '\\*');
  const line = (cells: readonly string[]): string => `| ${cells.map(text).join(` | ${gap}`)} |`;
  const rule = `|${header.map((_, i) => (i === 0 ? ' --- ' : ' ---: ')).join('|')}|`;
  return [line(header), rule, ...rows.map(line), '', ...footnotes.map(text)].join('\n');
}
