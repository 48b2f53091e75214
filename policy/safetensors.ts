/**
 * The safetensors format: 8 bytes little-endian header length, a JSON header {name: {dtype, shape, data_offsets}}, then the raw values.
 * Reads and writes F32, BF16 and F16, tensor by tensor, so that a large file is never in memory as a whole.
 * https://github.com/huggingface/safetensors#format
 */
import { closeSync, fstatSync, openSync, readSync, writeSync } from 'node:fs';
import { UserError } from '../environment/errors.ts';
import { FLOAT_BYTES, type FloatType, fromFloat32, toFloat32 } from './float-types.ts';

/** One tensor, row-major. */
export interface TensorEntry {
  readonly shape: readonly number[];
  readonly data: Float32Array;
}
/** A tensor whose values are made when their turn to be written comes. */
export interface TensorSource {
  readonly shape: readonly number[];
  readonly data: () => Float32Array;
}

/** An open file. */
export interface SafetensorsReader {
  readonly path: string;
  /** In the order of the header. */
  readonly shapes: ReadonlyMap<string, readonly number[]>;
  /** The values as float32. */
  read(name: string): Float32Array;
  close(): void;
}

interface HeaderEntry {
  readonly dtype: string;
  readonly shape: number[];
  readonly data_offsets: [number, number];
}

/** The format's own limit; a larger number means that this is not a safetensors file. */
const MAX_HEADER_BYTES = 100_000_000;
/** Reads and writes of more than 2 GiB fail on Linux, so large tensors go in pieces. */
const CHUNK_BYTES = 1 << 30;

/** Opens a file and checks its header. Throws UserError naming the file, the tensor and what was expected. */
export function openSafetensors(path: string): SafetensorsReader {
  let file: number;
  try {
    file = openSync(path, 'r');
  } catch (error) {
    throw new UserError(`${path}: cannot be opened (${(error as Error).message}), expected a safetensors file`);
  }
  try {
    const size = fstatSync(file).size;
    const { header, start } = readHeader(file, path, size);
    for (const [name, entry] of header) checkEntry(path, name, entry, size - start);
    return {
      path,
      shapes: new Map([...header].map(([name, { shape }]) => [name, shape])),
      read: (name) => {
        const entry = header.get(name);
        if (entry === undefined) throw new Error(`${path}: has no tensor ${name}`);
        const [from, to] = entry.data_offsets;
        return toFloat32(readBytes(file, path, start + from, to - from), entry.dtype as FloatType);
      },
      close: () => closeSync(file),
    };
  } catch (error) {
    closeSync(file);
    throw error;
  }
}

/** All tensors of a file as float32. Throws as `openSafetensors` does. */
export function readSafetensors(path: string): Map<string, TensorEntry> {
  const reader = openSafetensors(path);
  try {
    return new Map([...reader.shapes].map(([name, shape]) => [name, { shape, data: reader.read(name) }]));
  } finally {
    reader.close();
  }
}

function readHeader(file: number, path: string, size: number): { header: Map<string, HeaderEntry>; start: number } {
  const length = size < 8 ? -1 : Number(readBytes(file, path, 0, 8).readBigUInt64LE(0));
  if (length < 2 || length > MAX_HEADER_BYTES || 8 + length > size) {
    throw new UserError(`${path}: header of ${length} bytes in a file of ${size}, expected a safetensors file (is it complete?)`);
  }
  let json: Record<string, HeaderEntry>;
  try {
    json = JSON.parse(readBytes(file, path, 8, length).toString('utf8')) as Record<string, HeaderEntry>;
  } catch (error) {
    throw new UserError(`${path}: header is not JSON (${(error as Error).message})`);
  }
  return { header: new Map(Object.entries(json).filter(([name]) => name !== '__metadata__')), start: 8 + length };
}

function checkEntry(path: string, name: string, { dtype, shape, data_offsets: [from, to] }: HeaderEntry, size: number): void {
  if (!Object.hasOwn(FLOAT_BYTES, dtype))
    throw new UserError(`${path}: tensor ${name} has type ${dtype}, expected ${Object.keys(FLOAT_BYTES).join(', ')}`);
  const bytes = shape.reduce((a, b) => a * b, 1) * FLOAT_BYTES[dtype as FloatType];
  if (to - from !== bytes || from < 0 || to > size)
    throw new UserError(
      `${path}: tensor ${name} of shape [${shape.join(',')}] has bytes ${from} to ${to} of ${size}, expected ${bytes} bytes`,
    );
}

function readBytes(file: number, path: string, position: number, length: number): Buffer {
  const bytes = Buffer.alloc(length);
  for (let done = 0; done < length;) {
    const read = readSync(file, bytes, done, Math.min(CHUNK_BYTES, length - done), position + done);
    if (read === 0) throw new UserError(`${path}: ended ${length - done} bytes early while reading at ${position}`);
    done += read;
  }
  return bytes;
}

/**
 * Writes the tensors in the map's order, so that the same tensors give the same bytes. Throws UserError for a value that is finite in
 * float32 and not in `type`.
 */
export function writeSafetensors(path: string, tensors: ReadonlyMap<string, TensorEntry | TensorSource>, type: FloatType = 'F32'): void {
  const header: Record<string, unknown> = { __metadata__: { format: 'pt' } };
  let offset = 0;
  for (const [name, { shape }] of tensors) {
    const end = offset + size(shape) * FLOAT_BYTES[type];
    header[name] = { dtype: type, shape: [...shape], data_offsets: [offset, end] };
    offset = end;
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
    for (const [name, { shape, data }] of tensors) {
      const values = typeof data === 'function' ? data() : data;
      if (values.length !== size(shape))
        throw new Error(`${path}: tensor ${name} has ${values.length} values, expected ${size(shape)} for [${shape.join(',')}]`);
      const bytes = fromFloat32(values, type);
      if (type === 'F16') checkRange(path, name, values, bytes);
      writeBytes(file, bytes);
    }
  } finally {
    closeSync(file);
  }
}

const size = (shape: readonly number[]): number => shape.reduce((a, b) => a * b, 1);

function checkRange(path: string, name: string, values: Float32Array, bytes: Uint8Array): void {
  const halves = new Uint16Array(bytes.buffer, bytes.byteOffset, values.length);
  const found = values.findIndex((value, i) => ((halves[i] as number) & 0x7fff) === 0x7c00 && Number.isFinite(value));
  if (found >= 0)
    throw new UserError(`${path}: tensor ${name} holds ${values[found]}, expected at most 65504 in float16; bfloat16 has room`);
}

function writeBytes(file: number, bytes: Uint8Array): void {
  for (let done = 0; done < bytes.length;) done += writeSync(file, bytes, done, Math.min(CHUNK_BYTES, bytes.length - done));
}
