/**
 * `npm run compare -- FILE…`: the result files of several runs side by side, as Markdown: the four-suite mean by stage for
 * each run and over the runs, every suite's mean over the runs, and what the runs cost. docs/measurements.md is made of it.
 */
import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { z } from 'zod';
import { UserError } from '../environment/errors.ts';
import { mean, standardError } from '../method/statistics.ts';
import { runResultSchema, type RunResult } from '../records/result.ts';
import { percent } from '../workflows/table.ts';

/** @throws UserError for runs whose stages differ: their columns would not mean the same. */
export function compareRuns(runs: readonly RunResult[]): string {
  const names = runs[0]?.stages.map(({ name }) => name) ?? [];
  for (const run of runs) {
    const own = run.stages.map(({ name }) => name);
    if (own.join() !== names.join()) {
      throw new UserError(`run ${run.workflowId}: got the stages ${own.join(', ')}, expected ${names.join(', ')} as in the first run`);
    }
  }
  const header = (first: string): string[] => [`| ${first} | ${names.join(' | ')} |`, `| --- |${' ---: |'.repeat(names.length)}`];
  const line = (first: string, cells: readonly string[]): string => `| ${first} | ${cells.join(' | ')} |`;
  const over = (values: readonly number[]): string => percent(mean(values), runs.length > 1 ? standardError(values) : undefined);

  const fourSuites = [
    ...header('four-suite mean, %'),
    ...runs.map((run) =>
      line(
        `seed ${run.seed}`,
        run.stages.map((stage) => `${percent(stage.fourSuiteMean, stage.fourSuiteStandardError)}${stage.adopted ? '' : ' †'}`),
      ),
    ),
    line(
      'mean of the seeds',
      names.map((_, i) => over(runs.map((run) => run.stages[i]?.fourSuiteMean ?? 0))),
    ),
  ];
  const suites = [
    ...header('mean of the seeds, %'),
    ...(runs[0]?.stages[0]?.suites ?? []).map((suite) =>
      line(
        `${suite.name}${suite.metric === 'process' ? ' (process)' : ''}`,
        names.map((_, i) => over(runs.map((run) => run.stages[i]?.suites.find(({ name }) => name === suite.name)?.mean ?? 0))),
      ),
    ),
  ];
  const cost = [
    '| run | profile | sandbox | wall time, s | training episodes | evaluation episodes | without a verdict |',
    '| --- | --- | --- | ---: | ---: | ---: | ---: |',
    ...runs.map((run) => {
      const sum = (of: (stage: RunResult['stages'][number]) => number): number => run.stages.reduce((total, stage) => total + of(stage), 0);
      const [training, evaluation] = [sum((stage) => stage.episodes), sum((stage) => stage.evaluation.episodes)];
      const none = sum((stage) => stage.evaluation.noVerdict);
      return `| seed ${run.seed} | ${run.profile} | ${run.sandbox} | ${run.wallSeconds.toFixed(0)} | ${training} | ${evaluation} | ${none} |`;
    }),
  ];
  const note = '± is the standard error: of a seed over its repeated evaluations, of the mean over the seeds. † not adopted.';
  return [fourSuites, [note], suites, cost].map((block) => block.join('\n')).join('\n\n');
}

async function main(files: readonly string[]): Promise<void> {
  if (files.length === 0) throw new UserError('npm run compare -- FILE…: got no file, expected result files of runs (--result-file)');
  const runs: RunResult[] = [];
  for (const file of files) {
    const parsed = runResultSchema.safeParse(JSON.parse(await readFile(file, 'utf8')));
    if (!parsed.success) throw new UserError(`${file}: not a run's result file\n${z.prettifyError(parsed.error)}`);
    runs.push(parsed.data);
  }
  process.stdout.write(`${compareRuns(runs)}\n`);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  await main(process.argv.slice(2)).catch((error: unknown) => {
    process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
    process.exitCode = 1;
  });
}
