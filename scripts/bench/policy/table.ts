/** The benchmark's figures as Markdown, for the docs. */
import type { Spread } from '../environments.ts';
import type { Compared, Row } from './compare.ts';
import { NAMES } from './peers.ts';
import { PROMPT_TOKENS } from './workloads.ts';
import type { Size, Workload } from './workloads.ts';

export interface Result extends Compared {
  readonly size: Size;
  readonly workload: Workload;
  readonly parameters: number;
  readonly shape: { readonly rows: number; readonly length: number };
  readonly rounds: number;
}

/** A heading, the table, and what the engines were checked by. */
export function tableOf(result: Result): string {
  const { size, workload, parameters, shape, rounds, largestDifference } = result;
  const { rows, length } = shape;
  const training = workload === 'training';
  const what = training
    ? `one optimizer step of ${rows} × ${length} tokens`
    : `${rows} requests at once, ${PROMPT_TOKENS} + ${length - PROMPT_TOKENS} tokens each`;
  const head = [
    'engine',
    training ? 'ms a step' : 'tokens/s',
    training ? "time by PyTorch's" : "rate by PyTorch's",
    'ready after, s',
    "others' processors",
  ];
  const cells = result.rows.map((row) => [
    nameOf(row),
    speedOf(row, result),
    ratioOf(row.toTorch),
    row.prepareSeconds.toFixed(1),
    row.others.toFixed(2),
  ]);
  const table = [head, head.map((_, i) => (i === 0 ? '---' : '---:')), ...cells].map((line) => `| ${line.join(' | ')} |`).join('\n');
  return `${workload}, ${size} (${(parameters / 1e6).toFixed(1)} M parameters): ${what}; median (least–most) of ${rounds} rounds\n\n${table}\n\nLargest difference between the engines: ${largestDifference.toExponential(1)}`;
}

function nameOf({ engine, variant }: Row): string {
  return variant === undefined ? NAMES[engine] : `${NAMES[engine]} (${variant})`;
}

function speedOf({ seconds }: Row, { workload, shape }: Result): string {
  if (workload === 'training') return figure(seconds, 1000, 0);
  const tokens = shape.rows * (shape.length - PROMPT_TOKENS);
  return figure({ median: tokens / seconds.median, least: tokens / seconds.most, most: tokens / seconds.least }, 1, 0);
}

function ratioOf(ratio: Spread | undefined): string {
  return ratio === undefined ? '' : figure(ratio, 1, 2);
}

function figure({ median, least, most }: Spread, factor: number, digits: number): string {
  const text = (value: number): string => (value * factor).toFixed(digits);
  return `${text(median)} (${text(least)}–${text(most)})`;
}
