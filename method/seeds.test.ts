import assert from 'node:assert/strict';
import { test } from 'node:test';
import { deriveSeed, murmur3, Random } from './seeds.ts';

test('the hash equals published MurmurHash3 x86_32 values', () => {
  const hash = (text: string, seed: number): number => murmur3(new TextEncoder().encode(text), seed);
  assert.equal(hash('', 0), 0);
  assert.equal(hash('', 1), 0x514e28b7);
  assert.equal(hash('test', 0x9747b28c), 0x704b81dc);
  assert.equal(hash('Hello, world!', 0x9747b28c), 0x24884cba);
});

test('a seed is fixed for ever by its parts', () => {
  assert.equal(deriveSeed(7, 'RSR-1', 0), 4157090917);
});

test('parts cannot run into each other', () => {
  const seeds = [
    deriveSeed('ab', 'c'),
    deriveSeed('a', 'bc'),
    deriveSeed('abc'),
    deriveSeed('1'),
    deriveSeed(1),
    deriveSeed(1, ''),
    deriveSeed(),
  ];
  assert.equal(new Set(seeds).size, seeds.length);
  assert.throws(() => deriveSeed('run', Number.NaN), /NaN is not a finite number/);
});

test('the generator gives the numbers of an independent implementation of sfc32', () => {
  const zero = new Random(0);
  assert.deepEqual([zero.next(), zero.next(), zero.next()], [0.9817317219131122, 0.5801159137713449, 0.48707062736056117]);
  const other = new Random(12345);
  assert.deepEqual([other.next(), other.next(), other.next()], [0.6710935613842717, 0.9842000264684342, 0.37446154300428336]);
});

test('uniform numbers have the mean, variance and range of U[0,1)', () => {
  const random = new Random(1);
  const values = Array.from({ length: 20000 }, () => random.next());
  const mean = values.reduce((a, b) => a + b, 0) / values.length;
  const variance = values.reduce((a, b) => a + (b - mean) ** 2, 0) / values.length;
  assert.ok(Math.abs(mean - 0.5) < 0.01, `mean ${mean}`);
  assert.ok(Math.abs(variance - 1 / 12) < 0.003, `variance ${variance}`);
  assert.ok(values.every((value) => value >= 0 && value < 1));
});

test('int, pick, shuffle and chance stay in bounds and reach every value', () => {
  const random = new Random(2);
  const counts = [0, 0, 0, 0, 0];
  for (let i = 0; i < 5000; i++) {
    const drawn = random.int(5);
    counts[drawn] = (counts[drawn] ?? 0) + 1;
  }
  assert.ok(counts.length === 5 && counts.every((count) => count > 850 && count < 1150), counts.join(' '));
  const list = ['a', 'b', 'c', 'd'];
  assert.deepEqual(random.shuffle(list).sort(), list);
  assert.ok(list.includes(random.pick(list)));
  assert.equal(random.chance(0), false);
  assert.equal(random.chance(1), true);
  assert.throws(() => random.int(0), /expected a positive integer/);
  assert.throws(() => random.pick([]), /empty/);
});
