import assert from 'node:assert/strict';
import { it } from 'node:test';
import { markdownTable, percent, tableCells, type TableStage } from './table.ts';

const stage = (name: string, adopted: boolean, core: number, workflow?: number): TableStage => ({
  name,
  adopted,
  fourSuiteMean: core,
  standardError: 0.0123,
  suites: [
    { name: 'core', metric: 'strict', headline: true, scores: [core, core, core], mean: core, standardError: 0 },
    ...(workflow === undefined ? [] : [{ name: 'long', metric: 'process' as const, headline: false, scores: [workflow, workflow, workflow], mean: workflow, standardError: 0.05 }]),
  ],
});

it('prints shares as percent with their standard error', () => {
  assert.equal(percent(0.3333, 0.0123), '33.3 ± 1.2');
  assert.equal(percent(1), '100.0');
});

it('puts suites down and stages across, with the four-suite mean last', () => {
  const { header, rows } = tableCells([stage('Base', true, 0.25, 0.5), stage('RSR-1', false, 0.5)]);
  assert.deepEqual(header, ['suite, %', 'Base', 'RSR-1 †']);
  assert.deepEqual(rows, [
    ['core*', '25.0 ± 0.0', '50.0 ± 0.0'],
    ['long (process)', '50.0 ± 5.0', '–'],
    ['four-suite mean', '25.0 ± 1.2', '50.0 ± 1.2'],
  ]);
});

it('writes Markdown whose stars and bars are text', () => {
  const text = markdownTable([stage('Base', true, 0.25)]);
  assert.match(text, /^\| suite, % \| Base \|\n\| --- \| ---: \|\n\| core\\\* \|/);
  assert.match(text, /3 evaluations/);
  assert.equal(markdownTable([]), 'No stage has been evaluated yet.');
});
