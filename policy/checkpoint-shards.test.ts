import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, it } from 'node:test';
import { openWeights, writeWeights } from './checkpoint-shards.ts';
import { type TensorEntry, writeSafetensors } from './safetensors.ts';

const root = mkdtempSync(join(tmpdir(), 'shards-'));
after(() => rmSync(root, { recursive: true }));
let count = 0;
const fresh = (): string => {
  const directory = join(root, String(count++));
  mkdirSync(directory);
  return directory;
};

const tensor = (value: number, length = 4): TensorEntry => ({ shape: [length], data: new Float32Array(length).fill(value) });
const tensors = new Map([
  ['a', tensor(1)],
  ['b', tensor(2)],
  ['c', tensor(3, 8)],
  ['d', tensor(4)],
]);

/** A directory of shards: what each file holds, and what the index says. */
function shards(files: Record<string, string[]>, map: Record<string, unknown>): string {
  const directory = fresh();
  for (const [file, names] of Object.entries(files))
    writeSafetensors(join(directory, file), new Map(names.map((name) => [name, tensors.get(name) as TensorEntry])));
  writeFileSync(join(directory, 'model.safetensors.index.json'), JSON.stringify({ metadata: {}, weight_map: map }));
  return directory;
}
function read(directory: string): [string, number[]][] {
  const weights = openWeights(directory);
  const values = [...weights.shapes.keys()].map((name): [string, number[]] => [name, [...weights.read(name)]]);
  weights.close();
  return values;
}

describe('sharded weights', () => {
  it('are read as one, whichever file a tensor is in', () => {
    const directory = shards(
      { 'x.safetensors': ['a', 'd'], 'y.safetensors': ['b'] },
      { a: 'x.safetensors', b: 'y.safetensors', d: 'x.safetensors' },
    );
    assert.deepEqual(read(directory), [
      ['a', [1, 1, 1, 1]],
      ['b', [2, 2, 2, 2]],
      ['d', [4, 4, 4, 4]],
    ]);
  });
  it('are written with the names, sizes and index of transformers', () => {
    const directory = fresh();
    writeWeights(directory, new Map([...tensors].map(([name, t]) => [name, { shape: t.shape, data: () => t.data }])), {
      type: 'F32',
      shardBytes: 32,
    });
    assert.deepEqual(readdirSync(directory).sort(), [
      'model-00001-of-00003.safetensors',
      'model-00002-of-00003.safetensors',
      'model-00003-of-00003.safetensors',
      'model.safetensors.index.json',
    ]);
    assert.deepEqual(JSON.parse(readFileSync(join(directory, 'model.safetensors.index.json'), 'utf8')), {
      metadata: { total_size: 80 },
      weight_map: {
        a: 'model-00001-of-00003.safetensors',
        b: 'model-00001-of-00003.safetensors',
        c: 'model-00002-of-00003.safetensors',
        d: 'model-00003-of-00003.safetensors',
      },
    });
    assert.deepEqual(
      read(directory),
      [...tensors].map(([name, { data }]) => [name, [...data]]),
    );
  });
  it('name the file, the tensor and what was expected where', () => {
    const fails = (directory: string, message: RegExp): void => assert.throws(() => openWeights(directory), { name: 'UserError', message });
    const [x, y] = ['x.safetensors', 'y.safetensors'];
    fails(
      shards({ [x]: ['a'] }, { a: x, b: y }),
      /y\.safetensors: does not exist, expected a shard that model\.safetensors\.index\.json lists/,
    );
    fails(shards({ [x]: ['a'], [y]: ['d'] }, { a: x, b: y, d: y }), /y\.safetensors: tensor b is missing, expected it here/);
    fails(
      shards({ [x]: ['a', 'b'], [y]: ['d'] }, { a: x, b: y, d: y }),
      /x\.safetensors: holds tensor b, expected it in y\.safetensors only/,
    );
    fails(shards({ [x]: ['a', 'b'], [y]: ['b'] }, { a: x, b: y }), /x\.safetensors: holds tensor b, expected it in y\.safetensors only/);
    fails(shards({ [x]: ['a', 'b'] }, { a: x }), /x\.safetensors: holds tensor b, expected no tensor that the index does not list/);
    fails(shards({}, {}), /weight_map is \{\}, expected file names by tensor/);
    fails(shards({}, { a: '../x.safetensors' }), /tensor a is in "\.\.\/x\.safetensors", expected the name of a file beside the index/);
    const broken = fresh();
    writeFileSync(join(broken, 'model.safetensors.index.json'), '{');
    fails(broken, /index\.json: .*expected the index of a sharded checkpoint/);
    fails(fresh(), /model\.safetensors: cannot be opened/);
  });
});
