/**
 * The network behind the sampler: slots of a key-value cache, and steps that extend them (decoding.ts says what a step computes).
 *
 * The slots are divided into lanes. A lane has its own cache, and every step computes all rows of a lane at once in fixed shapes, so the
 * bits of a row depend on that row alone. Lanes without work are left out; the others run side by side, one on each core: compiled decode steps hardly use more
 * than one.
 */
import { appendStep, cacheName, decodingStep } from './decoding.ts';
import type { CacheShape, DecodingForm } from './decoding.ts';
import { engineMode } from './engine/mode.ts';
import { free, StepFunction, takeToHost } from './engine/step-function.ts';
import type { HostTensor, Inputs, NativeTensor } from './engine/step-function.ts';
import { Variable } from './engine/variable.ts';
import { ropeTables } from './rope.ts';
import type { DecodeOutput } from './sampler-draw.ts';
import { defaultLanes } from './tensorflow.ts';
import type { ModelConfig } from './types.ts';

/** Rows of a prefill, in each lane. */
const PREFILL_ROWS = 4;
const PREFILL_TOKENS = 32;
/** Positions of a cache block: short contexts do not pay for long ones, and long ones do not need hundreds of variables. */
const SHORT_BLOCK = 64;
const LONG_BLOCK = 256;
const LONG_CONTEXT = 2048;

/** What the sampler needs of a model: its shape and its weights, which it reads where they are. */
export interface SamplerWeights {
  readonly config: ModelConfig;
  readonly params: ReadonlyMap<string, Variable>;
}
/** Consecutive tokens of one slot, the first at `position`; at most `prefillTokens`. */
export interface PrefillChunk {
  readonly slot: number;
  readonly position: number;
  readonly tokens: readonly number[];
}
/** One token of one slot, to be appended at `position`. */
export interface DecodeRow {
  readonly slot: number;
  readonly position: number;
  readonly token: number;
  /** Above 0; 1 for greedy rows. */
  readonly temperature: number;
}

/** New tokens of one slot, and where their keys and values stand in the step's output. */
interface Written {
  /** Within the lane. */
  readonly slot: number;
  readonly position: number;
  /** Row of the step's input, counted in tokens. */
  readonly row: number;
}

export class SamplerNetwork {
  readonly config: ModelConfig;
  readonly slots: number;
  /** Tokens a slot can hold. */
  readonly length: number;
  /** Chunks of one prefill. */
  readonly prefillRows: number;
  /** Tokens of a chunk. */
  readonly prefillTokens = PREFILL_TOKENS;
  readonly #parameters: Readonly<Record<string, Variable>>;
  readonly #tables: Readonly<Record<'cos' | 'signedSin', Variable>>;
  readonly #cache: CacheShape;
  /** By lane: variables by name; blocks are added when they are first needed. */
  readonly #lanes: Record<string, Variable>[];
  readonly #functions = new Map<string, StepFunction>();
  readonly #mode = engineMode();

  /** The weights stay the caller's. */
  constructor(weights: SamplerWeights, slots: number, lanes = defaultLanes()) {
    const { config } = weights;
    const count = Math.min(lanes, slots);
    this.config = config;
    this.slots = slots;
    this.length = config.max_position_embeddings;
    this.prefillRows = count * PREFILL_ROWS;
    this.#cache = { slots: Math.ceil(slots / count), block: this.length > LONG_CONTEXT ? LONG_BLOCK : SHORT_BLOCK };
    this.#parameters = Object.fromEntries(weights.params);
    const { cos, signedSin } = ropeTables(config, this.length);
    const shape = [this.length, config.head_dim];
    this.#tables = { cos: new Variable(shape, cos), signedSin: new Variable(shape, signedSin) };
    this.#lanes = Array.from({ length: count }, () => ({}));
  }

  /** Feeds one token to each listed slot; the result holds what each listed row is drawn from, in order. */
  decode(rows: readonly DecodeRow[]): DecodeOutput[] {
    const { slots } = this.#cache;
    const lanes = [...new Set(rows.map(({ slot }) => this.#lane(slot)))].sort((a, b) => a - b);
    const inputs = lanes.map(() => ({
      tokens: new Int32Array(slots),
      positions: new Int32Array(slots),
      temperature: new Float32Array(slots).fill(1),
    }));
    const written: Written[][] = lanes.map(() => []);
    for (const { slot, position, token, temperature } of rows) {
      const lane = lanes.indexOf(this.#lane(slot));
      const row = slot % slots;
      const input = inputs[lane]!;
      input.tokens[row] = token;
      input.positions[row] = position;
      input.temperature[row] = temperature;
      written[lane]!.push({ slot: row, position, row });
    }
    const form = { blocks: this.#blocks(rows), rows: slots, tokens: 1, gather: false, logits: true };
    const outputs = this.#run(
      form,
      lanes,
      inputs.map(({ tokens, positions, temperature }) => ({
        tokens: { shape: [slots], data: tokens },
        positions: { shape: [slots], data: positions },
        temperature: { shape: [slots], data: temperature },
      })),
    );
    this.#append(
      lanes,
      outputs.map(([, , made]) => made!),
      written,
    );
    const drawn = outputs.map(([weights, logSum]) => ({ weights: takeToHost(weights!) as Float32Array, logSum: takeToHost(logSum!) }));
    const vocabulary = this.config.vocab_size;
    return rows.map(({ slot }) => {
      const { weights, logSum } = drawn[lanes.indexOf(this.#lane(slot))]!;
      const row = slot % slots;
      return { weights: weights.subarray(row * vocabulary, (row + 1) * vocabulary), logSum: logSum[row]! };
    });
  }

  /** Writes at most `prefillRows` chunks, of different slots, into the cache. */
  prefill(chunks: readonly PrefillChunk[]): void {
    const byLane = this.#lanes.map((_, lane) => chunks.filter(({ slot }) => this.#lane(slot) === lane));
    for (let start = 0; byLane.some((own) => own.length > start); start += PREFILL_ROWS) {
      const lanes = byLane.flatMap((own, lane) => (own.length > start ? [lane] : []));
      this.#prefillLanes(
        lanes,
        lanes.map((lane) => byLane[lane]!.slice(start, start + PREFILL_ROWS)),
      );
    }
  }

  /** Frees the cache. */
  dispose(): void {
    for (const step of this.#functions.values()) step.dispose();
    this.#functions.clear();
    for (const lane of this.#lanes.splice(0)) for (const variable of Object.values(lane)) variable.dispose();
    for (const table of Object.values(this.#tables)) table.dispose();
  }

  #prefillLanes(lanes: readonly number[], chunks: readonly (readonly PrefillChunk[])[]): void {
    const count = PREFILL_ROWS * PREFILL_TOKENS;
    const written: Written[][] = lanes.map(() => []);
    const inputs = chunks.map((own, i) => {
      const tokens = new Int32Array(count);
      const positions = new Int32Array(count);
      const slots = new Int32Array(PREFILL_ROWS);
      own.forEach((chunk, r) => {
        slots[r] = chunk.slot % this.#cache.slots;
        chunk.tokens.forEach((token, c) => {
          const row = r * PREFILL_TOKENS + c;
          tokens[row] = token;
          positions[row] = chunk.position + c;
          written[i]!.push({ slot: slots[r]!, position: chunk.position + c, row });
        });
      });
      return {
        tokens: { shape: [count], data: tokens },
        positions: { shape: [count], data: positions },
        slots: { shape: [PREFILL_ROWS], data: slots },
      };
    });
    const form = { blocks: this.#blocks(chunks.flat()), rows: PREFILL_ROWS, tokens: PREFILL_TOKENS, gather: true, logits: false };
    const made = this.#run(form, lanes, inputs).map(([only]) => only!);
    this.#append(lanes, made, written);
  }

  #run(form: DecodingForm, lanes: readonly number[], inputs: readonly Inputs[]): NativeTensor[][] {
    const key = `${JSON.stringify(form)} ${lanes.join()}`;
    let step = this.#functions.get(key);
    if (step === undefined) {
      const variables = lanes.map((lane) => ({ ...this.#parameters, ...this.#tables, ...this.#cached(lane, form.blocks) }));
      step = new StepFunction(this.#mode, decodingStep(this.config, this.#cache, form, form.logits), variables);
      this.#functions.set(key, step);
    }
    return step.run(inputs);
  }

  /** Writes the lanes' new keys and values, block by block, and frees them. */
  #append(lanes: readonly number[], made: readonly NativeTensor[], written: readonly (readonly Written[])[]): void {
    const { block } = this.#cache;
    const blockOf = ({ position }: Written): number => Math.floor(position / block);
    for (const touched of new Set(written.flat().map(blockOf))) {
      const taking = lanes.map((_, i) => i).filter((i) => written[i]!.some((one) => blockOf(one) === touched));
      const inputs = taking.map((i) => ({
        made: made[i]!,
        ...this.#pairs(
          written[i]!.filter((one) => blockOf(one) === touched),
          made[i]!,
        ),
      }));
      this.#appender(
        taking.map((i) => lanes[i]!),
        touched,
      ).run(inputs);
    }
    for (const tensor of made) free(tensor);
  }

  /** Rows of `made` and where they go in the block's variables, always as many pairs as `made` has rows. */
  #pairs(written: readonly Written[], made: NativeTensor): { source: HostTensor; target: HostTensor } {
    const K = this.config.num_key_value_heads;
    const { block } = this.#cache;
    const size = made.shape[1]!;
    const source = new Int32Array(size);
    const target = new Int32Array(size);
    let n = 0;
    for (const { slot, position, row } of written) {
      for (let k = 0; k < K; k++, n++) {
        source[n] = row * K + k;
        target[n] = (slot * K + k) * block + (position % block);
      }
    }
    // The shape is fixed: the rest writes the first pair once more.
    source.fill(source[0]!, n);
    target.fill(target[0]!, n);
    return { source: { shape: [size], data: source }, target: { shape: [size], data: target } };
  }

  #appender(lanes: readonly number[], block: number): StepFunction {
    const key = `append ${block} ${lanes.join()}`;
    let step = this.#functions.get(key);
    if (step === undefined) {
      const variables = lanes.map((lane) => Object.fromEntries(this.#names(block).map((name) => [name, this.#block(lane, name)])));
      step = new StepFunction(this.#mode, appendStep(this.config, block), variables);
      this.#functions.set(key, step);
    }
    return step;
  }

  #lane(slot: number): number {
    return Math.floor(slot / this.#cache.slots);
  }

  /** Blocks that hold what lies before these rows' new tokens, rounded up to a short ladder: every number of blocks is compiled for itself. */
  #blocks(rows: readonly { readonly position: number }[]): number {
    const needed = Math.ceil(rows.reduce((most, { position }) => Math.max(most, position), 0) / this.#cache.block);
    const most = Math.ceil(this.length / this.#cache.block);
    // 1, 2, 3, 4, 6, 8, 12, 16, 24 …
    const power = 2 ** Math.floor(Math.log2(Math.max(1, needed)));
    const rung = [power, 1.5 * power, 2 * power].find((blocks) => blocks >= needed && Number.isInteger(blocks))!;
    return Math.min(rung, most);
  }

  #names(block: number): string[] {
    return Array.from({ length: this.config.num_hidden_layers }, (_, i) => [
      cacheName('keys', i, block),
      cacheName('values', i, block),
    ]).flat();
  }
  #cached(lane: number, blocks: number): Record<string, Variable> {
    const names = Array.from({ length: blocks }, (_, block) => this.#names(block)).flat();
    return Object.fromEntries(names.map((name) => [name, this.#block(lane, name)]));
  }
  #block(lane: number, name: string): Variable {
    const variables = this.#lanes[lane]!;
    const { slots, block } = this.#cache;
    return (variables[name] ??= new Variable([slots * this.config.num_key_value_heads * block, this.config.head_dim]));
  }
}
