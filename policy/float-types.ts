/** The 16-bit number types of checkpoints, to and from float32. Typed arrays view the bytes directly: every machine that Node.js runs on here is little-endian. */

/** Number types by their names in safetensors. */
export type FloatType = 'F32' | 'BF16' | 'F16';

export const FLOAT_BYTES: Readonly<Record<FloatType, number>> = { F32: 4, BF16: 2, F16: 2 };

/** The values as float32, exactly. `bytes` is taken over: for F32 the result is a view of it. Its offset must be a multiple of 4. */
export function toFloat32(bytes: Uint8Array, type: FloatType): Float32Array {
  const count = bytes.byteLength / FLOAT_BYTES[type];
  if (type === 'F32') return new Float32Array(bytes.buffer, bytes.byteOffset, count);
  const halves = new Uint16Array(bytes.buffer, bytes.byteOffset, count);
  if (type === 'F16') return Float32Array.from(halves, halfToNumber);
  const out = new Float32Array(count);
  // bfloat16 is the upper half of a float32.
  const bits = new Uint32Array(out.buffer);
  for (let i = 0; i < count; i++) bits[i] = (halves[i] as number) << 16;
  return out;
}

/** The bytes of the values in the given type, rounded to nearest, ties to even (IEEE 754). What is too large becomes infinite. */
export function fromFloat32(values: Float32Array, type: FloatType): Uint8Array {
  if (type === 'F32') return new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
  const round = type === 'BF16' ? toBrainFloat : toHalf;
  const bits = new Uint32Array(values.buffer, values.byteOffset, values.length);
  const out = new Uint16Array(values.length);
  for (let i = 0; i < values.length; i++) out[i] = round(bits[i] as number);
  return new Uint8Array(out.buffer);
}

/** IEEE 754 binary16. */
function halfToNumber(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 0x1f) return fraction === 0 ? sign * Infinity : NaN;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

const isNaNBits = (bits: number): boolean => (bits & 0x7fffffff) > 0x7f800000;

/** Float32 bits to bfloat16 bits: the carry of the rounding runs into the exponent as it should, up to infinity. */
function toBrainFloat(bits: number): number {
  if (isNaNBits(bits)) return (bits >>> 16) | 0x40;
  return (bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16;
}

/** Float32 bits to binary16 bits. */
function toHalf(bits: number): number {
  const sign = (bits >>> 16) & 0x8000;
  if (isNaNBits(bits)) return sign | 0x7e00;
  const exponent = ((bits >>> 23) & 0xff) - 127;
  if (exponent > 15) return sign | 0x7c00;
  // Below 2^-14 the spacing stays 2^-24: more bits fall off. Below 2^-25 nothing is left.
  const dropped = exponent < -14 ? 13 + (-14 - exponent) : 13;
  if (dropped > 24) return sign;
  const fraction = (bits & 0x7fffff) | 0x800000;
  const half = 1 << (dropped - 1);
  const kept = (fraction + half - 1 + ((fraction >>> dropped) & 1)) >>> dropped;
  // With the leading 1 still in `kept`, adding it raises the exponent field by one; subnormal numbers have none.
  return sign | (exponent < -14 ? kept : ((exponent + 14) << 10) + kept);
}
