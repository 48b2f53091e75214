/** A run's results on a terminal: the cells of workflows/table.ts, in colour where the terminal has it. */
import Table from 'cli-table3';
import pc from 'picocolors';
import { tableCells, type TableStage } from '../workflows/table.ts';

/** The suite × stage table with its footnotes; one line of text while no stage has been evaluated. */
export function terminalTable(stages: readonly TableStage[]): string {
  if (stages.length === 0) return 'No stage has been evaluated yet.';
  const { header, rows, footnotes } = tableCells(stages);
  const table = new Table({
    head: [...header],
    colAligns: header.map((_, i) => (i === 0 ? 'left' : 'right')),
    style: { head: [], border: [], compact: true },
  });
  table.push(...rows.map((row, i) => (i === rows.length - 1 ? row.map((cell) => pc.bold(cell)) : [...row])));
  return [table.toString(), ...footnotes.map((note) => pc.dim(note))].join('\n');
}
