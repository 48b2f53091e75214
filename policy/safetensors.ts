/**
 * The safetensors format: 8 bytes little-endian header length, a JSON header {name: {dtype, shape, data_offsets}}, then the raw values.
 * Reads F32, BF16 and F16 into float32; writes F32. https://github.com/huggingface/safetensors#format
 */
import { closeSync, fstatSync, openSync, readSync, writeSync } from 'node:fs';
import { UserError } from '../environment/errors.ts';

/** One tensor, row-major. */
export interface TensorEntry {
  readonly shape: readonly number[];
  readonly data: Float32Array;
}

interface HeaderEntry {
  readonly dtype: string;
  readonly shape: number[];
  readonly data_offsets: [number, number];
}

const BYTES: Readonly<Record<string, number>> = { F32: 4, BF16: 2, F16: 2 };
/** The format's own limit; a larger number means that this is not a safetensors file. */
const MAX_HEADER_BYTES = 100_000_000;
/** Reads and writes of more than 2 GiB fail on Linux, so large tensors go in pieces. */
const CHUNK_BYTES = 1 << 30;

/** All tensors of a file as float32. Throws UserError naming the file, the tensor and what was expected. */
export function readSafetensors(path: string): Map<string, TensorEntry> {
  let file: number;
  try {
    file = openSync(path, 'r');
  } catch (error) {
    throw new UserError(`${path}: cannot be opened (${(error as Error).message}), expected a safetensors file`);
  }
  try {
    const size = fstatSync(file).size;
    const { header, start } = readHeader(file, path, size);
    const tensors = new Map<string, TensorEntry>();
    for (const [name, entry] of Object.entries(header)) {
      if (name === '__metadata__') continue;
      tensors.set(name, readTensor(file, path, name, entry as HeaderEntry, start, size));
    }
    return tensors;
  } finally {
    closeSync(file);
  }
}

function readHeader(file: number, path: string, size: number): { header: Record<string, unknown>; start: number } {
  const length = size < 8 ? -1 : Number(readBytes(file, 0, 8).readBigUInt64LE(0));
  if (length < 2 || length > MAX_HEADER_BYTES || 8 + length > size) {
    throw new UserError(`${path}: header of ${length} bytes in a file of ${size}, expected a safetensors file (is it complete?)`);
  }
  try {
    return { header: JSON.parse(readBytes(file, 8, length).toString('utf8')) as Record<string, unknown>, start: 8 + length };
  } catch (error) {
    throw new UserError(`${path}: header is not JSON (${(error as Error).message})`);
  }
}

function readTensor(file: number, path: string, name: string, entry: HeaderEntry, start: number, size: number): TensorEntry {
  const width = BYTES[entry.dtype];
  if (width === undefined)
    throw new UserError(`${path}: tensor ${name} has type ${entry.dtype}, expected ${Object.keys(BYTES).join(', ')}`);
  const [from, to] = entry.data_offsets;
  const count = entry.shape.reduce((a, b) => a * b, 1);
  if (to - from !== count * width || from < 0 || start + to > size) {
    throw new UserError(
      `${path}: tensor ${name} of shape [${entry.shape.join(',')}] has bytes ${from} to ${to} of ${size - start}, expected ${count * width} bytes`,
    );
  }
  const bytes = readBytes(file, start + from, to - from);
  return { shape: entry.shape, data: toFloat32(bytes, entry.dtype, count) };
}

function readBytes(file: number, position: number, length: number): Buffer {
  const bytes = Buffer.alloc(length);
  for (let done = 0; done < length;) {
    const read = readSync(file, bytes, done, Math.min(CHUNK_BYTES, length - done), position + done);
    if (read === 0) throw new UserError(`file ended ${length - done} bytes early while reading at ${position}`);
    done += read;
  }
  return bytes;
}

function toFloat32(bytes: Buffer, dtype: string, count: number): Float32Array {
  if (dtype === 'F32') return new Float32Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength));
  const out = new Float32Array(count);
  if (dtype === 'BF16') {
    // bfloat16 is the upper half of a float32.
    const bits = new Uint32Array(out.buffer);
    for (let i = 0; i < count; i++) bits[i] = bytes.readUInt16LE(2 * i) << 16;
    return out;
  }
  for (let i = 0; i < count; i++) out[i] = halfToNumber(bytes.readUInt16LE(2 * i));
  return out;
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

/** Writes the tensors as F32 in the map's order, so that the same tensors give the same bytes. */
export function writeSafetensors(path: string, tensors: ReadonlyMap<string, TensorEntry>): void {
  const header: Record<string, unknown> = { __metadata__: { format: 'pt' } };
  let offset = 0;
  for (const [name, { shape, data }] of tensors) {
    const count = shape.reduce((a, b) => a * b, 1);
    if (data.length !== count)
      throw new Error(`${path}: tensor ${name} has ${data.length} values, expected ${count} for [${shape.join(',')}]`);
    header[name] = { dtype: 'F32', shape: [...shape], data_offsets: [offset, offset + data.byteLength] };
    offset += data.byteLength;
  }
  const json = JSON.stringify(header);
  // Readers map the file into memory; spaces keep the values aligned to 8 bytes.
  const text = Buffer.from(json + ' '.repeat(-Buffer.byteLength(json) & 7), 'utf8');
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  const file = openSync(path, 'wx');
  try {
    writeBytes(file, length);
    writeBytes(file, text);
    for (const { data } of tensors.values()) writeBytes(file, Buffer.from(data.buffer, data.byteOffset, data.byteLength));
  } finally {
    closeSync(file);
  }
}

function writeBytes(file: number, bytes: Buffer): void {
  for (let done = 0; done < bytes.length;) done += writeSync(file, bytes, done, Math.min(CHUNK_BYTES, bytes.length - done));
}
