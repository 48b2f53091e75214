import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { fromFloat32, toFloat32 } from './float-types.ts';

const all = Uint16Array.from({ length: 65536 }, (_, bits) => bits);
const values = (type: 'F16' | 'BF16'): Float32Array => toFloat32(new Uint8Array(all.buffer), type);
function bitsOf(type: 'F16' | 'BF16', numbers: readonly number[]): number[] {
  const bytes = fromFloat32(Float32Array.from(numbers), type);
  return [...new Uint16Array(bytes.buffer, bytes.byteOffset, numbers.length)];
}
/** The float32 that follows a positive one. */
function next(value: number): number {
  const bits = new Uint32Array(Float32Array.of(value).buffer);
  bits[0] = (bits[0] as number) + 1;
  return new Float32Array(bits.buffer)[0] as number;
}

for (const [type, infinity] of [
  ['F16', 0x7c00],
  ['BF16', 0x7f80],
] as const) {
  describe(type, () => {
    const numbers = values(type);
    it('brings every value back to its own bits', () => {
      const back = bitsOf(type, [...numbers]);
      for (let bits = 0; bits < 65536; bits++) {
        if (Number.isNaN(numbers[bits])) assert.ok(Number.isNaN(toFloat32(fromFloat32(numbers.subarray(bits, bits + 1), type), type)[0]));
        else assert.equal(back[bits], bits);
      }
    });
    it('rounds to the nearest, and what lies in the middle to the even one', () => {
      // In float32 the middle of two neighbours is exact, except below its own smallest numbers.
      for (let bits = 1; bits < infinity - 1; bits++) {
        const middle = ((numbers[bits] as number) + (numbers[bits + 1] as number)) / 2;
        const even = bits % 2 === 0 ? bits : bits + 1;
        const [below, at, above] = bitsOf(type, [numbers[bits] as number, middle, next(middle)]);
        assert.deepEqual([below, at, above], [bits, even, bits + 1], `between ${bits} and ${bits + 1}`);
        assert.equal(bitsOf(type, [-middle])[0], even | 0x8000);
      }
    });
    it('makes what is too large infinite, and keeps signs', () => {
      const largest = numbers[infinity - 1] as number;
      const step = largest - (numbers[infinity - 2] as number);
      assert.deepEqual(bitsOf(type, [largest + 0.49 * step, Infinity, -Infinity, -0]), [infinity - 1, infinity, infinity | 0x8000, 0x8000]);
      assert.equal(bitsOf(type, [type === 'F16' ? largest + 0.5 * step : 3.4028234e38])[0], infinity);
    });
  });
}

it('F16 of numbers that every table lists', () => {
  assert.deepEqual(
    bitsOf('F16', [1, -2, 65504, 65519, 65520, 2 ** -14, 2 ** -24, 2 ** -25, 2 ** -25 * 1.0001, 0.333251953125]),
    [0x3c00, 0xc000, 0x7bff, 0x7bff, 0x7c00, 0x0400, 0x0001, 0x0000, 0x0001, 0x3555],
  );
});
