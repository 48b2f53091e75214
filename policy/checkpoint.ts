/**
 * Policies and critics on disk, in the layout of Hugging Face transformers: `config.json`, `model.safetensors` (or shards), and a policy's
 * `tokenizer.json`. docs/checkpoints.md says what is supported. Here are the directories; policy/model-config.ts reads the configuration,
 * policy/checkpoint-shards.ts the files, policy/checkpoint-layout.ts knows the names.
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { UserError } from '../environment/errors.ts';
import { writeDirectoryAtomically } from './checkpoint-files.ts';
import { EMBEDDINGS, extract, OUTPUT_HEAD, place, type Placement, placements, VALUE_HEAD } from './checkpoint-layout.ts';
import { openWeights, writeWeights } from './checkpoint-shards.ts';
import type { FloatType } from './float-types.ts';
import { configText, readConfig } from './model-config.ts';
import { type Model, modelFromValues } from './model-parameters.ts';
import { parameterShapes } from './parameter-shapes.ts';
import type { SafetensorsReader, TensorSource } from './safetensors.ts';
import type { ModelConfig, ModelRole } from './types.ts';

/** Files that make a directory a policy with text; only the first must be there. */
const TOKENIZER_FILES = [
  'tokenizer.json',
  'tokenizer_config.json',
  'special_tokens_map.json',
  'added_tokens.json',
  'generation_config.json',
  'chat_template.jinja',
] as const;
/** Those files by name, in memory: the directory that a model was loaded from may be gone when it is saved. */
export type TokenizerFiles = ReadonlyMap<string, Uint8Array>;

/** Number types of an export by their names in config.json. */
export const EXPORT_TYPES = { float32: 'F32', bfloat16: 'BF16', float16: 'F16' } as const satisfies Record<string, FloatType>;
export type ExportType = keyof typeof EXPORT_TYPES;

/** Values per file of a sharded export, in bytes: transformers 4's default. */
const SHARD_BYTES = 5e9;

/**
 * Reads a policy or critic. A critic from a policy directory takes over the trunk and gets a zero value head. Throws UserError naming
 * the file, the field or tensor, what was found and what was expected.
 */
export function loadModel(directory: string, role: ModelRole): Model {
  const config = readConfig(directory);
  const weights = openWeights(directory);
  try {
    const list = placements(config, role);
    checkTensors(weights, list, config, role);
    return modelFromValues(config, role, (parameter, shape) => {
      const values = new Float32Array(shape.reduce((a, b) => a * b, 1));
      for (const placement of list.filter((p) => p.parameter === parameter && weights.shapes.has(p.name)))
        place(placement, weights.read(placement.name), values, shape[1] ?? 1);
      return values;
    });
  } finally {
    weights.close();
  }
}

/** Everything is checked before the first value is read. */
function checkTensors(weights: SafetensorsReader, list: readonly Placement[], config: ModelConfig, role: ModelRole): void {
  const { path, shapes } = weights;
  if (role === 'actor' && shapes.has(VALUE_HEAD))
    throw new UserError(`${path}: has ${VALUE_HEAD}, which makes it a critic, expected a policy`);
  const left = new Set(shapes.keys());
  for (const { name, shape } of list) {
    const found = shapes.get(name);
    if (found === undefined && name === VALUE_HEAD) continue;
    if (found === undefined) throw new UserError(`${path}: tensor ${name} is missing, expected shape [${shape.join(',')}]`);
    if (found.join() !== shape.join()) {
      throw new UserError(`${path}: tensor ${name} has shape [${found.join(',')}], expected [${shape.join(',')}] from config.json`);
    }
    left.delete(name);
  }
  if (config.tie_word_embeddings && left.has(OUTPUT_HEAD)) checkTied(weights);
  for (const name of left) {
    // A critic needs no output matrix; old Llama checkpoints store the rotary frequencies, which config.json gives too.
    if (name === OUTPUT_HEAD || name.endsWith('.self_attn.rotary_emb.inv_freq')) continue;
    throw new UserError(`${path}: tensor ${name} has no place in a ${config.model_type} ${role} with this config.json`);
  }
}

/** Some checkpoints store tied embeddings a second time, as output matrix. One that differs would be a different model. */
function checkTied(weights: SafetensorsReader): void {
  const [embeddings, output] = [weights.read(EMBEDDINGS), weights.read(OUTPUT_HEAD)];
  if (embeddings.length === output.length && embeddings.every((value, i) => value === output[i])) return;
  throw new UserError(`${weights.path}: tensor ${OUTPUT_HEAD} differs from ${EMBEDDINGS}, expected a copy (tie_word_embeddings is true)`);
}

/** The tokenizer and chat template of a policy directory. Throws UserError when there is none. */
export function readTokenizer(directory: string): TokenizerFiles {
  const found = TOKENIZER_FILES.filter((file) => existsSync(join(directory, file)));
  if (!found.includes('tokenizer.json'))
    throw new UserError(`${join(directory, 'tokenizer.json')}: does not exist, expected the policy's tokenizer`);
  return new Map(found.map((file) => [file, readFileSync(join(directory, file))]));
}

export interface SaveOptions {
  readonly tokenizer?: TokenizerFiles;
  /** How the values are stored; default float32, which loses nothing. */
  readonly type?: ExportType;
  /** More bytes of values than this are split into several files. */
  readonly shardBytes?: number;
}

/** Writes a new directory in the layout that `loadModel` reads, all or nothing. A policy has a tokenizer beside its weights. */
export function saveModel(model: Model, directory: string, options: SaveOptions = {}): void {
  const { tokenizer, type = 'float32', shardBytes = SHARD_BYTES } = options;
  const shapes = parameterShapes(model.config, model.role);
  // Query, key and value follow each other and come out of one parameter: its values are fetched once.
  let fetched = '';
  let values: Float32Array = new Float32Array();
  const valuesOf = (name: string): Float32Array => {
    if (name === fetched) return values;
    const parameter = model.params.get(name);
    if (parameter === undefined) throw new Error(`parameter ${name}: not in the model (disposed?)`);
    fetched = name;
    return (values = parameter.read());
  };
  const tensors = new Map<string, TensorSource>();
  for (const placement of placements(model.config, model.role)) {
    const width = shapes.get(placement.parameter)?.[1] ?? 1;
    tensors.set(placement.name, { shape: placement.shape, data: () => extract(placement, valuesOf(placement.parameter), width) });
  }
  writeDirectoryAtomically(directory, (temporary) => {
    writeWeights(temporary, tensors, { type: EXPORT_TYPES[type], shardBytes });
    writeFileSync(join(temporary, 'config.json'), configText(model.config, type));
    for (const [file, bytes] of tokenizer ?? []) writeFileSync(join(temporary, file), bytes);
  });
}
