/**
 * `npm run bench:orchestration`: what the workflows themselves cost. Activities answer at once; server, histories and workers are
 * real, with the database in a file as in production. It prints tables for docs/measurements.md, and ends with status 1
 * when a history is over a limit.
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { UserError } from '../environment/errors.ts';
import { TemporalServer } from '../tests/temporal.ts';
import type { TrainingRunInput } from '../workflows/contract.ts';
import { batchCost, BenchWorker, runCost } from './bench/orchestration.ts';
import type { BatchCost, RunCost, Size } from './bench/orchestration.ts';
import { runOverhead } from './bench/overhead.ts';
import type { MemorySample } from './bench/worker.ts';

/** Of one execution: a fresh worker has to replay it within a workflow task, and the server suggests to continue as new at about this. */
const MAX_EVENTS = 4_000;
const MAX_BYTES = 4 * 1024 * 1024;

const HELP = `npm run bench:orchestration [-- options]

  --episodes LIST      sizes of the batches (default: 100,1000,10000)
  --input JSON         input of the whole run that is measured (default: {"profile":"quick"})
  --result-file F      write the figures as JSON
  --run ARCHIVE        instead: overhead of a real run, from its exported histories
`;

const { values } = parseArgs({
  options: {
    episodes: { type: 'string', default: '100,1000,10000' },
    input: { type: 'string', default: '{"profile":"quick"}' },
    'result-file': { type: 'string' },
    run: { type: 'string' },
    help: { type: 'boolean', default: false },
  },
});
if (values.help) process.stdout.write(HELP);
else if (values.run !== undefined) process.stdout.write(await runOverhead(values.run));
else await bench();

async function bench(): Promise<void> {
  const sizes = values.episodes.split(',').map(Number);
  if (!sizes.every((size) => Number.isInteger(size) && size > 0))
    throw new UserError(`--episodes: got ${values.episodes}, expected numbers of episodes such as 100,1000`);
  const input = JSON.parse(values.input) as TrainingRunInput;
  const folder = await mkdtemp(path.join(tmpdir(), 'terminal-rsi-bench-'));
  const server = await TemporalServer.start({ database: path.join(folder, 'temporal.db') });
  const batches: BatchCost[] = [];
  let run: RunCost;
  let worker: BenchWorker | undefined;
  try {
    worker = await BenchWorker.start(server.address);
    // What a first workflow costs once, loading the code for example, is no cost of an episode.
    await batchCost(server, 32);
    for (const size of sizes) batches.push(await batchCost(server, size));
    run = await runCost(server, input);
  } finally {
    await worker?.stop();
    await server.stop();
    await rm(folder, { recursive: true, force: true });
  }
  const memory = worker.memory;
  process.stdout.write(report(batches, run) + memoryTable(memory));
  const largest = [...batches, run.total];
  const events = Math.max(...largest.map((size) => size.largestEvents));
  const bytes = Math.max(...largest.map((size) => size.largestBytes));
  const within = events <= MAX_EVENTS && bytes <= MAX_BYTES;
  process.stdout.write(
    `\nLargest history: ${events} events (limit ${MAX_EVENTS}), ${mebibytes(bytes)} MiB (limit ${mebibytes(MAX_BYTES)})${within ? '' : ': OVER THE LIMIT'}\n`,
  );
  if (values['result-file'] !== undefined) {
    const result = { schema: 'terminal-rsi/orchestration/1', batches, run, memory, largest: { events, bytes }, within };
    await writeFile(values['result-file'], `${JSON.stringify(result, undefined, 2)}\n`);
  }
  process.exitCode = within ? 0 : 1;
}

function report(batches: readonly BatchCost[], run: RunCost): string {
  const rows = batches.map((cost) => [
    ...[cost.episodes, cost.executions, cost.events, cost.eventsPerEpisode.toFixed(2), Math.round(cost.bytesPerEpisode)],
    ...[cost.millisecondsPerEpisode.toFixed(2), cost.seconds.toFixed(1), cost.largestEvents, mebibytes(cost.largestBytes)],
  ]);
  const sizeRow = ([name, size]: [string, Size]): (string | number)[] => {
    return [name, size.executions, size.events, mebibytes(size.bytes), size.largestEvents, mebibytes(size.largestBytes)];
  };
  const heads = ['executions', 'events', 'MiB', 'largest, events', 'largest, MiB'];
  return [
    'One batch of episodes, chunks of 32, four in flight:\n',
    table(['episodes', 'executions', 'events', 'events/episode', 'bytes/episode', 'ms/episode', 's', ...heads.slice(3)], rows),
    growth(batches),
    `A run of the shape of \`${JSON.stringify(run.input)}\`, ${run.episodes} episodes, ${run.seconds.toFixed(0)} s, ${((1000 * run.seconds) / run.episodes).toFixed(2)} ms/episode:\n`,
    table(['workflow', ...heads], Object.entries({ ...run.byWorkflow, all: run.total }).map(sizeRow)),
    table(['stage', ...heads], Object.entries(run.byStage).map(sizeRow)),
  ].join('\n');
}

/** Exponent of the growth between the two largest batches: 1 is linear. */
function growth(batches: readonly BatchCost[]): string {
  const [small, large] = batches.slice(-2);
  if (!small || !large || small.episodes === large.episodes) return '';
  const exponent = (a: number, b: number): string => (Math.log(b / a) / Math.log(large.episodes / small.episodes)).toFixed(2);
  return (
    `Growth from ${small.episodes} to ${large.episodes} episodes, as an exponent (1 is linear): events ${exponent(small.events, large.events)}, ` +
    `bytes ${exponent(small.bytes, large.bytes)}, time ${exponent(small.seconds, large.seconds)}\n`
  );
}

function memoryTable(memory: readonly MemorySample[]): string {
  const rows = memory.map(({ episodes, rssBytes }) => [episodes, mebibytes(rssBytes, 0)]);
  return `\nResident memory of the worker after each thousand episodes:\n\n${table(['episodes', 'MiB'], rows)}`;
}

function table(head: readonly string[], rows: readonly (readonly (string | number)[])[]): string {
  const line = (cells: readonly (string | number)[]): string => `| ${cells.join(' | ')} |`;
  return `${[line(head), line(head.map(() => '---:')), ...rows.map(line)].join('\n')}\n`;
}
function mebibytes(bytes: number, digits = 2): string {
  return (bytes / 2 ** 20).toFixed(digits);
}
