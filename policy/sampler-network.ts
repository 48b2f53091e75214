/**
 * The policy's forward pass with a key-value cache, for sampling only. Fixed shapes throughout: `decode` always computes
 * all rows, `prefill` always PREFILL_ROWS x PREFILL_TOKENS tokens, so the bits of a row depend on that row alone.
 *
 * Attention covers the cache in blocks of BLOCK positions and skips blocks that no row has reached. That changes no bits:
 * each block is computed in the same shape, partial sums are added in the order of the blocks, and a block beyond a row's
 * length contributes exactly 0 to it (and nothing to its maximum).
 *
 * Same function as the training forward in model.ts, rearranged to need few operations per step:
 *  - norm weights are folded into the matrix behind them; the norm's scalar stays where it was;
 *  - queries and keys come out of one product together with their rotated halves (rotate_half is a signed permutation of
 *    columns), so RoPE is x·cos + rotated·sin with tables that already hold the QK-norm weights;
 *  - 1/sqrt(head_dim) sits in the query's tables.
 * The row after the last slot is scratch: idle rows and padding write there.
 */
import type { DecodeOutput } from './sampler-draw.ts';
import type { ModelConfig } from './types.ts';
import { RawOps } from './sampler-ops.ts';
import type { TensorId } from './sampler-ops.ts';

const PREFILL_ROWS = 8;
const PREFILL_TOKENS = 32;
const BLOCK = 64;

/** What the sampler needs of a model: its shape and its weights. */
export interface SamplerWeights {
  readonly config: ModelConfig;
  readonly params: ReadonlyMap<string, { dataSync(): ArrayLike<number> }>;
}
/** Consecutive tokens of one slot, the first at `position`; at most PREFILL_TOKENS. */
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

interface Layer {
  readonly project: TensorId; // [D, 2(H+K)Dh + K·Dh]: q|k, their rotated halves, v
  readonly cos: TensorId; // [T, (H+K), Dh], QK-norm weights and query scale included
  readonly sin: TensorId;
  readonly output: TensorId;
  readonly gateUp: TensorId;
  readonly down: TensorId;
  readonly keys: Cache;
  readonly values: Cache;
}
/** Keys or values of all slots, one buffer seen in several shapes. */
interface Cache {
  /** [blocks·rows·K·BLOCK, Dh], for writing. */
  readonly flat: TensorId;
  /** By number of blocks - 1: [n, rows, K, BLOCK, Dh], for decode. */
  readonly whole: readonly TensorId[];
  /** By number of blocks - 1: [n, rows, K·BLOCK·Dh], from which prefill gathers its rows. */
  readonly byRow: readonly TensorId[];
}
/** Shape constants of one call form: `rows` cache rows with `tokens` new tokens each, looking at `blocks` blocks. */
interface Form {
  readonly tokens: number;
  readonly blocks: number;
  readonly range: TensorId;
  readonly shapes: Readonly<
    Record<
      'heads' | 'flat' | 'query' | 'queryGroups' | 'gathered' | 'scores' | 'weights' | 'totals' | 'mixed' | 'output' | 'positions',
      TensorId
    >
  >;
}

export class SamplerNetwork {
  readonly config: ModelConfig;
  readonly slots: number;
  /** Tokens a slot can hold. */
  readonly length: number;
  /** Chunks of one prefill. */
  readonly prefillRows = PREFILL_ROWS;
  /** Tokens of a chunk. */
  readonly prefillTokens = PREFILL_TOKENS;
  readonly #ops = new RawOps();
  readonly #owned: TensorId[] = [];
  readonly #layers: Layer[] = [];
  readonly #embed: TensorId;
  readonly #head: TensorId;
  readonly #constants: ReturnType<SamplerNetwork['makeConstants']>;
  readonly #forms = new Map<string, Form>();
  readonly #blocks: number;

  constructor(weights: SamplerWeights, slots: number) {
    const config = weights.config;
    this.config = config;
    this.slots = slots;
    this.length = config.max_position_embeddings;
    this.#blocks = Math.ceil(this.length / BLOCK);
    const data = (name: string): Float32Array => {
      const parameter = weights.params.get(name);
      if (parameter === undefined) throw new Error(`sampler: the model has no parameter '${name}'`);
      return Float32Array.from(parameter.dataSync());
    };
    const D = config.hidden_size;
    const embed = data('embed');
    this.#embed = this.#keep([config.vocab_size, D], embed);
    const norm = data('norm');
    const head = new Float32Array(D * config.vocab_size);
    for (let v = 0; v < config.vocab_size; v++) for (let d = 0; d < D; d++) head[d * config.vocab_size + v] = embed[v * D + d]! * norm[d]!;
    this.#head = this.#keep([D, config.vocab_size], head);
    this.#constants = this.makeConstants();
    for (let i = 0; i < config.num_hidden_layers; i++) this.#layers.push(this.#makeLayer(i, data));
  }

  /** Feeds one token to each listed slot; the result holds what each listed row is drawn from, in order. */
  decode(rows: readonly DecodeRow[]): DecodeOutput[] {
    const count = this.slots + 1;
    const tokens = new Int32Array(count);
    const positions = new Int32Array(count);
    const slots = new Int32Array(count).fill(this.slots);
    for (const row of rows) {
      tokens[row.slot] = row.token;
      positions[row.slot] = row.position;
      slots[row.slot] = row.slot;
    }
    const vocabulary = this.config.vocab_size;
    const form = this.#form(count, 1, positions);
    return this.#ops.scope(() => {
      const hidden = this.#forward(form, tokens, positions, slots, undefined);
      const all = this.#ops.read(this.#ops.matMul(this.#normalize(hidden), this.#head));
      return rows.map((row) => exponentials(all.subarray(row.slot * vocabulary, (row.slot + 1) * vocabulary), row.temperature));
    });
  }

  /** Writes at most PREFILL_ROWS chunks, of different slots, into the cache. */
  prefill(chunks: readonly PrefillChunk[]): void {
    const count = PREFILL_ROWS * PREFILL_TOKENS;
    const tokens = new Int32Array(count);
    const positions = new Int32Array(count);
    const slots = new Int32Array(count).fill(this.slots);
    const cacheRows = new Int32Array(PREFILL_ROWS).fill(this.slots);
    chunks.forEach((chunk, r) => {
      cacheRows[r] = chunk.slot;
      chunk.tokens.forEach((token, c) => {
        const i = r * PREFILL_TOKENS + c;
        tokens[i] = token;
        positions[i] = chunk.position + c;
        slots[i] = chunk.slot;
      });
    });
    const form = this.#form(PREFILL_ROWS, PREFILL_TOKENS, positions);
    this.#ops.scope(() => this.#forward(form, tokens, positions, slots, cacheRows));
  }

  dispose(): void {
    for (const id of this.#owned.splice(0)) this.#ops.free(id);
  }

  #forward(form: Form, tokens: Int32Array, positions: Int32Array, slots: Int32Array, cacheRows: Int32Array | undefined): TensorId {
    const ops = this.#ops;
    const c = this.#constants;
    const K = this.config.num_key_value_heads;
    const position = ops.ints([positions.length], positions);
    const rows = new Int32Array(positions.length * K);
    for (let i = 0; i < positions.length; i++) {
      const block = Math.floor(positions[i]! / BLOCK);
      for (let k = 0; k < K; k++) rows[i * K + k] = ((block * (this.slots + 1) + slots[i]!) * K + k) * BLOCK + (positions[i]! % BLOCK);
    }
    const target = ops.ints([rows.length], rows);
    // -1e9 where a key lies behind the query: [blocks, rows, 1, tokens, 1, BLOCK]
    const mask = ops.mul(ops.toFloat(ops.greater(form.range, ops.reshape(position, form.shapes.positions))), c.minusBillion);
    const cacheIndex = cacheRows && ops.ints([cacheRows.length], cacheRows);
    let x = ops.gather(this.#embed, ops.ints([tokens.length], tokens), c.zero);
    for (const layer of this.#layers) {
      x = ops.add(x, this.#attention(layer, form, x, position, target, mask, cacheIndex));
      const [gate, up] = ops.split(ops.matMul(this.#normalize(x), layer.gateUp), c.gateSizes, c.one, 2) as [TensorId, TensorId];
      x = ops.add(x, ops.matMul(ops.mul(ops.mul(gate, ops.sigmoid(gate)), up), layer.down));
    }
    return x;
  }

  #attention(
    layer: Layer,
    form: Form,
    x: TensorId,
    position: TensorId,
    target: TensorId,
    mask: TensorId,
    cacheIndex: TensorId | undefined,
  ): TensorId {
    const ops = this.#ops;
    const c = this.#constants;
    const projected = ops.matMul(this.#normalize(x), layer.project);
    const [qk, rotated, value] = ops.split(projected, c.projectSizes, c.one, 3) as [TensorId, TensorId, TensorId];
    const heads = ops.reshape(qk, form.shapes.heads);
    const scale = ops.rsqrt(ops.add(ops.mean(ops.square(heads), c.two), c.epsilon));
    const straight = ops.mul(heads, ops.gather(layer.cos, position, c.zero));
    const turned = ops.mul(ops.reshape(rotated, form.shapes.heads), ops.gather(layer.sin, position, c.zero));
    const [query, key] = ops.split(ops.mul(ops.add(straight, turned), scale), c.headSizes, c.one, 2) as [TensorId, TensorId];
    ops.writeRows(layer.keys.flat, target, ops.reshape(key, form.shapes.flat));
    ops.writeRows(layer.values.flat, target, ops.reshape(value, form.shapes.flat));

    const cached = (cache: Cache): TensorId => {
      if (cacheIndex === undefined) return cache.whole[form.blocks - 1]!;
      return ops.reshape(ops.gather(cache.byRow[form.blocks - 1]!, cacheIndex, c.one), form.shapes.gathered);
    };
    let q = ops.reshape(query, form.shapes.query);
    if (form.tokens > 1) q = ops.reshape(ops.transpose(q, c.swap), form.shapes.queryGroups);
    const scores = ops.add(ops.reshape(ops.batchMatMulTransposed(q, cached(layer.keys)), form.shapes.scores), mask);
    const weights = ops.exp(ops.sub(scores, ops.max(scores, c.blockAndKeyAxes)));
    const totals = ops.sum(ops.sum(weights, c.keyAxis), c.zeroAxis);
    const sums = ops.sum(ops.batchMatMul(ops.reshape(weights, form.shapes.weights), cached(layer.values)), c.zeroAxis);
    let mixed = ops.div(sums, ops.reshape(totals, form.shapes.totals));
    if (form.tokens > 1) mixed = ops.transpose(ops.reshape(mixed, form.shapes.mixed), c.swap);
    return ops.matMul(ops.reshape(mixed, form.shapes.output), layer.output);
  }

  /** RMSNorm without its weight, which is folded into the matrix that follows. */
  #normalize(x: TensorId): TensorId {
    const ops = this.#ops;
    const c = this.#constants;
    return ops.mul(x, ops.rsqrt(ops.add(ops.mean(ops.square(x), c.oneAxis), c.epsilon)));
  }

  #makeLayer(index: number, data: (name: string) => Float32Array): Layer {
    const { hidden_size: D, num_attention_heads: H, num_key_value_heads: K, head_dim: Dh, intermediate_size: F, rope_theta } = this.config;
    const half = Dh / 2;
    const width = (H + 2 * K) * Dh;
    const qk = (H + K) * Dh;
    const folded = scaleRows(data(`${index}.qkv`), data(`${index}.attnNorm`), width);
    const wide = 2 * qk + K * Dh;
    const project = new Float32Array(D * wide);
    for (let d = 0; d < D; d++) {
      for (let j = 0; j < qk; j++) {
        const inHead = j % Dh;
        const partner = inHead < half ? j + half : j - half;
        project[d * wide + j] = folded[d * width + j]!;
        project[d * wide + qk + j] = (inHead < half ? -1 : 1) * folded[d * width + partner]!;
      }
      for (let j = 0; j < K * Dh; j++) project[d * wide + 2 * qk + j] = folded[d * width + qk + j]!;
    }
    const qNorm = data(`${index}.qNorm`);
    const kNorm = data(`${index}.kNorm`);
    const cos = new Float32Array(this.length * qk);
    const sin = new Float32Array(this.length * qk);
    for (let t = 0; t < this.length; t++) {
      for (let j = 0; j < qk; j++) {
        const inHead = j % Dh;
        const angle = t * rope_theta ** ((-2 * (inHead % half)) / Dh);
        const isQuery = j < H * Dh;
        const norm = isQuery ? qNorm : kNorm;
        const factor = isQuery ? 1 / Math.sqrt(Dh) : 1;
        cos[t * qk + j] = Math.cos(angle) * norm[inHead]! * factor;
        sin[t * qk + j] = Math.sin(angle) * norm[inHead < half ? inHead + half : inHead - half]! * factor;
      }
    }
    return {
      project: this.#keep([D, wide], project),
      cos: this.#keep([this.length, H + K, Dh], cos),
      sin: this.#keep([this.length, H + K, Dh], sin),
      output: this.#keep([H * Dh, D], data(`${index}.o`)),
      gateUp: this.#keep([D, 2 * F], scaleRows(data(`${index}.gateUp`), data(`${index}.mlpNorm`), 2 * F)),
      down: this.#keep([F, D], data(`${index}.down`)),
      keys: this.#makeCache(),
      values: this.#makeCache(),
    };
  }

  private makeConstants() {
    const { num_attention_heads: H, num_key_value_heads: K, head_dim: Dh, intermediate_size: F, rms_norm_eps } = this.config;
    return {
      zero: this.#integer(0),
      one: this.#integer(1),
      oneAxis: this.#integers([1]),
      two: this.#integers([2]),
      zeroAxis: this.#integers([0]),
      keyAxis: this.#integers([5]),
      blockAndKeyAxes: this.#integers([0, 5]),
      swap: this.#integers([0, 2, 1, 3, 4]),
      epsilon: this.#keep([], Float32Array.of(rms_norm_eps)),
      minusBillion: this.#keep([], Float32Array.of(-1e9)),
      projectSizes: this.#integers([(H + K) * Dh, (H + K) * Dh, K * Dh]),
      headSizes: this.#integers([H, K]),
      gateSizes: this.#integers([F, F]),
    };
  }

  #makeCache(): Cache {
    const { num_key_value_heads: K, head_dim: Dh } = this.config;
    const rows = this.slots + 1;
    const ops = this.#ops;
    const flat = this.#zeros([this.#blocks * rows * K * BLOCK, Dh]);
    const views = (shape: readonly number[]): TensorId[] => {
      const whole = this.#own(ops.reshape(flat, this.#integers([this.#blocks, ...shape])));
      const begin = this.#integers([this.#blocks, ...shape].map(() => 0));
      return Array.from({ length: this.#blocks }, (_, n) => this.#own(ops.slice(whole, begin, this.#integers([n + 1, ...shape]))));
    };
    return { flat, whole: views([rows, K, BLOCK, Dh]), byRow: views([rows, K * BLOCK * Dh]) };
  }

  /** The form that reaches the last of `positions`. */
  #form(rows: number, tokens: number, positions: Int32Array): Form {
    const blocks = Math.floor(positions.reduce((a, b) => Math.max(a, b), 0) / BLOCK) + 1;
    const name = `${tokens}x${blocks}`;
    const form = this.#forms.get(name) ?? this.#makeForm(rows, tokens, blocks);
    this.#forms.set(name, form);
    return form;
  }

  #makeForm(rows: number, tokens: number, blocks: number): Form {
    const { num_attention_heads: H, num_key_value_heads: K, head_dim: Dh } = this.config;
    const G = H / K;
    const range = this.#ops.ints(
      [blocks, 1, 1, 1, 1, BLOCK],
      Int32Array.from({ length: blocks * BLOCK }, (_, t) => t),
    );
    return {
      tokens,
      blocks,
      range: this.#own(range),
      shapes: {
        positions: this.#integers([1, rows, 1, tokens, 1, 1]),
        heads: this.#integers([rows * tokens, H + K, Dh]),
        flat: this.#integers([rows * tokens * K, Dh]),
        query: this.#integers(tokens > 1 ? [rows, tokens, K, G, Dh] : [1, rows, K, G, Dh]),
        queryGroups: this.#integers([1, rows, K, tokens * G, Dh]),
        gathered: this.#integers([blocks, rows, K, BLOCK, Dh]),
        scores: this.#integers([blocks, rows, K, tokens, G, BLOCK]),
        weights: this.#integers([blocks, rows, K, tokens * G, BLOCK]),
        totals: this.#integers([1, rows, K, tokens * G, 1]),
        mixed: this.#integers([rows, K, tokens, G, Dh]),
        output: this.#integers([rows * tokens, H * Dh]),
      },
    };
  }

  #own(id: TensorId): TensorId {
    this.#owned.push(id);
    return id;
  }
  #keep(shape: readonly number[], data: Float32Array): TensorId {
    const id = this.#ops.floats(shape, data);
    this.#owned.push(id);
    return id;
  }
  #integers(values: readonly number[]): TensorId {
    const id = this.#ops.ints([values.length], Int32Array.from(values));
    this.#owned.push(id);
    return id;
  }
  #integer(value: number): TensorId {
    const id = this.#ops.ints([], Int32Array.of(value));
    this.#owned.push(id);
    return id;
  }
  #zeros(shape: readonly number[]): TensorId {
    const dimensions = this.#ops.ints([shape.length], Int32Array.from(shape));
    const value = this.#ops.floats([], Float32Array.of(0));
    const id = this.#ops.fill(dimensions, value);
    this.#ops.free(dimensions);
    this.#ops.free(value);
    this.#owned.push(id);
    return id;
  }
}

function exponentials(logits: Float32Array, temperature: number): DecodeOutput {
  let max = -Infinity;
  for (let i = 0; i < logits.length; i++) if (logits[i]! > max) max = logits[i]!;
  let sum = 0;
  const weights = new Float32Array(logits.length);
  for (let i = 0; i < logits.length; i++) {
    const untempered = Math.exp(logits[i]! - max);
    sum += untempered;
    weights[i] = temperature === 1 ? untempered : Math.exp((logits[i]! - max) / temperature);
  }
  return { weights, logSum: Math.log(sum) };
}

/** diag(scale) · matrix, row-major with `width` columns. */
function scaleRows(matrix: Float32Array, scale: Float32Array, width: number): Float32Array {
  return matrix.map((value, i) => value * scale[Math.floor(i / width)]!);
}
