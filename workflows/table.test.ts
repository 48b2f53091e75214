import assert from 'node:assert/strict';
import { it } from 'node:test';
import { stripVTControlCharacters } from 'node:util';
import { terminalTable } from '../records/table.ts';
import { markdownTable, percent, tableCells, type TableStage } from './table.ts';

const stage = (name: string, adopted: boolean, core: number, long?: number, repeats = 3): TableStage => {
  const suite = (suiteName: string, mean: number, standardError: number, headline: boolean): TableStage['suites'][number] => ({
    ...{ name: suiteName, metric: headline ? 'strict' : 'process', headline, mean, standardError },
    scores: Array<number>(repeats).fill(mean),
  });
  return {
    ...{ name, adopted, reused: false, fourSuiteMean: core, standardError: 0.0123 },
    suites: [suite('core', core, 0, true), ...(long === undefined ? [] : [suite('long', long, 0.05, false)])],
  };
};

it('prints shares as percent with their standard error', () => {
  assert.equal(percent(0.3333, 0.0123), '33.3 ± 1.2');
  assert.equal(percent(1), '100.0');
});

it('puts suites down and stages across, with the four-suite mean last', () => {
  const { header, rows, footnotes } = tableCells([stage('Base', true, 0.25, 0.5), stage('RSR-1', false, 0.5)]);
  assert.deepEqual(header, ['suite, %', 'Base', 'RSR-1 †']);
  assert.deepEqual(rows, [
    ['core*', '25.0 ± 0.0', '50.0 ± 0.0'],
    ['long (process)', '50.0 ± 5.0', '–'],
    ['four-suite mean', '25.0 ± 1.2', '50.0 ± 1.2'],
  ]);
  assert.match(footnotes[0] ?? '', /3 evaluations/);
});

it('claims no standard error for a single evaluation', () => {
  const { rows, footnotes } = tableCells([stage('Base', true, 0.25, undefined, 1)]);
  assert.deepEqual(rows[0], ['core*', '25.0']);
  assert.match(footnotes[0] ?? '', /one evaluation/);
});

it('writes Markdown whose stars are text, and says so when there is nothing', () => {
  assert.match(markdownTable([stage('Base', true, 0.25)]), /^\| suite, % \| Base \|\n\| --- \| ---: \|\n\| core\\\* \|/);
  assert.equal(markdownTable([]), 'No stage has been evaluated yet.');
  assert.equal(terminalTable([]), 'No stage has been evaluated yet.');
});

it('prints the same cells on a terminal', () => {
  const text = stripVTControlCharacters(terminalTable([stage('Base', true, 0.25, 0.5), stage('RSR-1', true, 0.5, 0.6)]));
  for (const cell of ['Base', 'RSR-1', 'core*', '25.0 ± 0.0', 'long (process)', 'four-suite mean']) assert.ok(text.includes(cell), cell);
});
