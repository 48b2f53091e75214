/**
 * The weights of a checkpoint directory, whichever way they are split: `model.safetensors`, or shards with the index
 * `model.safetensors.index.json`, whose `weight_map` says which file holds which tensor.
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { UserError } from '../environment/errors.ts';
import { FLOAT_BYTES, type FloatType } from './float-types.ts';
import { openSafetensors, type SafetensorsReader, type TensorSource, writeSafetensors } from './safetensors.ts';

const SINGLE = 'model.safetensors';
const INDEX = 'model.safetensors.index.json';

/** Opens the weights of a directory. Throws UserError naming the file, the tensor, and what was expected where. */
export function openWeights(directory: string): SafetensorsReader {
  const index = join(directory, INDEX);
  if (existsSync(join(directory, SINGLE)) || !existsSync(index)) return openSafetensors(join(directory, SINGLE));
  const map = readIndex(index);
  const files = [...new Set(map.values())].sort();
  const readers = new Map<string, SafetensorsReader>();
  const close = (): void => readers.forEach((reader) => reader.close());
  try {
    for (const file of files) {
      const path = join(directory, file);
      if (!existsSync(path)) throw new UserError(`${path}: does not exist, expected a shard that ${INDEX} lists`);
      readers.set(file, openSafetensors(path));
    }
    checkIndex(index, map, readers);
  } catch (error) {
    close();
    throw error;
  }
  const readerOf = (name: string): SafetensorsReader => {
    const file = map.get(name);
    if (file === undefined) throw new Error(`${index}: has no tensor ${name}`);
    return readers.get(file) as SafetensorsReader;
  };
  return {
    path: index,
    shapes: new Map([...map.keys()].map((name) => [name, readerOf(name).shapes.get(name) as readonly number[]])),
    read: (name) => readerOf(name).read(name),
    close,
  };
}

function readIndex(index: string): Map<string, string> {
  let map: unknown;
  try {
    map = (JSON.parse(readFileSync(index, 'utf8')) as { weight_map?: unknown }).weight_map;
  } catch (error) {
    throw new UserError(`${index}: ${(error as Error).message}, expected the index of a sharded checkpoint`);
  }
  const entries = Object.entries((map ?? {}) as Record<string, unknown>);
  if (entries.length === 0)
    throw new UserError(`${index}: weight_map is ${JSON.stringify(map) ?? 'missing'}, expected file names by tensor`);
  for (const [name, file] of entries) {
    if (typeof file !== 'string' || file !== basename(file))
      throw new UserError(`${index}: tensor ${name} is in ${JSON.stringify(file)}, expected the name of a file beside the index`);
  }
  return new Map(entries as [string, string][]);
}

/** Index and shards must agree: each tensor is in the shard that the index names, and in no other. */
function checkIndex(index: string, map: ReadonlyMap<string, string>, readers: ReadonlyMap<string, SafetensorsReader>): void {
  for (const [file, reader] of readers) {
    for (const name of reader.shapes.keys()) {
      const listed = map.get(name);
      if (listed === file) continue;
      const expected = listed === undefined ? 'no tensor that the index does not list' : `it in ${listed} only, as the index says`;
      throw new UserError(`${reader.path}: holds tensor ${name}, expected ${expected} (${index})`);
    }
  }
  for (const [name, file] of map) {
    const reader = readers.get(file) as SafetensorsReader;
    if (!reader.shapes.has(name)) throw new UserError(`${reader.path}: tensor ${name} is missing, expected it here as ${index} says`);
  }
}

/** Writes the tensors into `directory`: one file, or shards of at most `shardBytes` of values each (one tensor at least) and their index. */
export function writeWeights(
  directory: string,
  tensors: ReadonlyMap<string, TensorSource>,
  { type, shardBytes }: { readonly type: FloatType; readonly shardBytes: number },
): void {
  const shards: Map<string, TensorSource>[] = [];
  let [total, filled] = [0, 0];
  for (const [name, tensor] of tensors) {
    const bytes = tensor.shape.reduce((a, b) => a * b, 1) * FLOAT_BYTES[type];
    if (shards.length === 0 || filled + bytes > shardBytes) {
      shards.push(new Map());
      filled = 0;
    }
    (shards.at(-1) as Map<string, TensorSource>).set(name, tensor);
    filled += bytes;
    total += bytes;
  }
  if (shards.length === 1) return writeSafetensors(join(directory, SINGLE), tensors, type);
  const five = (n: number): string => String(n).padStart(5, '0');
  const weightMap: Record<string, string> = {};
  shards.forEach((shard, i) => {
    const file = `model-${five(i + 1)}-of-${five(shards.length)}.safetensors`;
    writeSafetensors(join(directory, file), shard, type);
    for (const name of shard.keys()) weightMap[name] = file;
  });
  writeFileSync(join(directory, INDEX), `${JSON.stringify({ metadata: { total_size: total }, weight_map: weightMap }, null, 2)}\n`);
}
