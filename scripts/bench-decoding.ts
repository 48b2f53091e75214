/**
 * Why a decode step takes as long as it does:
 *
 *   npm run bench:decoding [-- SIZE [SLOTS]]     SIZE: d128 (default) or d256; SLOTS: 32
 *
 * Prints a step's time by how many cache blocks it reads, the rate at which it reads them, and beside it the rate at which the same cache can be
 * read at all: by a compiled sum over the same variables in the same lanes.
 */
import { UserError } from '../environment/errors.ts';
import { cacheName, decodingStep } from '../policy/decoding.ts';
import { engineMode } from '../policy/engine/mode.ts';
import { free, StepFunction } from '../policy/engine/step-function.ts';
import type { Inputs } from '../policy/engine/step-function.ts';
import { Variable } from '../policy/engine/variable.ts';
import { createModel } from '../policy/model-parameters.ts';
import { ropeTables } from '../policy/rope.ts';
import { defaultLanes, tf } from '../policy/tensorflow.ts';
import { MADE } from './bench/policy/workloads.ts';
import { errorText } from './error-text.ts';

const BLOCK = 64;
const MOST_BLOCKS = 4;
const ROUNDS = 30;
const CALLS = 8;

function main(): void {
  const [size = 'd128', slots = '32'] = process.argv.slice(2);
  const config = MADE[size];
  if (config === undefined) throw new UserError(`size '${size}': expected ${Object.keys(MADE).join(' or ')}`);
  const lanes = defaultLanes();
  const rows = Math.ceil(Number(slots) / lanes);
  if (!(rows >= 1)) throw new UserError(`slots '${slots}': expected a whole number above 0`);
  const mode = engineMode();
  const parameters = Object.fromEntries(createModel(config, 'actor', 1).params);
  const tables = ropeTables(config, config.max_position_embeddings);
  const shape = [config.max_position_embeddings, config.head_dim];
  const [cos, signedSin] = [new Variable(shape, tables.cos), new Variable(shape, tables.signedSin)];
  const cells = rows * config.num_key_value_heads * BLOCK * config.head_dim;
  const caches = Array.from({ length: lanes }, () =>
    Object.fromEntries(
      Array.from({ length: MOST_BLOCKS * config.num_hidden_layers * 2 }, (_, i) => {
        const [block, layer] = [Math.floor(i / 2 / config.num_hidden_layers), Math.floor(i / 2) % config.num_hidden_layers];
        const values = Float32Array.from({ length: cells }, (_, j) => Math.sin(i + j));
        return [cacheName(i % 2 === 0 ? 'keys' : 'values', layer, block), new Variable([cells / config.head_dim, config.head_dim], values)];
      }),
    ),
  );
  const firstBlocks = (blocks: number): Record<string, Variable>[] =>
    caches.map((cache) => Object.fromEntries(Object.entries(cache).filter(([name]) => Number(name.split('.')[2]) < blocks)));
  const step = (blocks: number): (() => number) => {
    const form = { blocks, rows, tokens: 1, gather: false, logits: true };
    const variables = firstBlocks(blocks).map((cache) => ({ ...parameters, cos, signedSin, ...cache }));
    return timed(new StepFunction(mode, decodingStep(config, { slots: rows, block: BLOCK }, form, true), variables), {
      tokens: { shape: [rows], data: new Int32Array(rows).fill(5) },
      positions: { shape: [rows], data: new Int32Array(rows).fill(blocks * BLOCK) },
      temperature: { shape: [rows], data: new Float32Array(rows).fill(1) },
    });
  };
  const reading = timed(
    new StepFunction(
      mode,
      {
        key: 'sum of the cache',
        xla: true,
        build: (_, cache) => ({ outputs: [tf.addN(Object.values(cache).map((values) => tf.sum(values)))] }),
      },
      firstBlocks(MOST_BLOCKS),
    ),
    {},
  );
  const steps = Array.from({ length: MOST_BLOCKS + 1 }, (_, blocks) => step(blocks));
  const all = [...steps, reading];
  const times = all.map((): number[] => []);
  // In turns, so that a slow minute of the machine hits all alike.
  for (let round = 0; round < ROUNDS; round++) all.forEach((call, i) => times[i]!.push(...Array.from({ length: CALLS }, call)));
  const medians = times.map((own) => own.slice(CALLS).sort((a, b) => a - b)[Math.floor((own.length - CALLS) / 2)]!);
  const megabytes = (blocks: number): number => (blocks * config.num_hidden_layers * 2 * cells * lanes * 4) / 1e6;
  console.log(`${size}: ${rows * lanes} rows in ${lanes} lanes, medians of ${(ROUNDS - 1) * CALLS} calls`);
  console.log('\n| cache read, positions | MB | ms a step | GB/s beyond an empty cache |\n| ---: | ---: | ---: | ---: |');
  for (let blocks = 0; blocks <= MOST_BLOCKS; blocks++) {
    const rate = blocks === 0 ? '' : (megabytes(blocks) / (medians[blocks]! - medians[0]!)).toFixed(1);
    console.log(`| ${blocks * BLOCK} | ${megabytes(blocks).toFixed(1)} | ${medians[blocks]!.toFixed(2)} | ${rate} |`);
  }
  const sum = medians[MOST_BLOCKS + 1]!;
  console.log(
    `\nA sum over the same ${megabytes(MOST_BLOCKS).toFixed(1)} MB takes ${sum.toFixed(2)} ms: ${(megabytes(MOST_BLOCKS) / sum).toFixed(1)} GB/s`,
  );
}

/** Milliseconds of one call with these inputs in every lane. */
function timed(step: StepFunction, inputs: Inputs): () => number {
  const lanes = defaultLanes();
  return () => {
    const start = performance.now();
    const outputs = step.run(Array.from({ length: lanes }, () => inputs));
    const taken = performance.now() - start;
    outputs.flat().forEach(free);
    return taken;
  };
}

try {
  main();
} catch (error) {
  console.error(errorText(error));
  process.exitCode = 1;
}
