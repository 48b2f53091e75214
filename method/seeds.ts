/**
 * Where every random choice of a run comes from: `deriveSeed` names a choice by what it belongs to (run seed, stage,
 * task, sample, turn, …), `Random` turns that seed into numbers. Pure TypeScript without Node's or the platform's
 * randomness, so the same parts give the same choice in a workflow, in an activity and on another machine.
 */

/**
 * Hashes the parts of a name to an unsigned 32-bit seed. Parts are encoded with their type and length, so that
 * ('ab', 'c'), ('a', 'bc'), ('1') and (1) are four different names. MurmurHash3 (x86, 32 bit) over UTF-16 code units.
 *
 * @throws RangeError for a number that is not finite: it would silently give all such choices one seed.
 */
export function deriveSeed(...parts: (string | number)[]): number {
  const encoded = parts.map((part) => {
    if (typeof part === 'string') return `s${part.length}:${part}`;
    if (!Number.isFinite(part)) throw new RangeError(`deriveSeed: part ${part} is not a finite number`);
    const text = String(part);
    return `n${text.length}:${text}`;
  });
  return murmur3(utf16Bytes(encoded.join('')), 0);
}

/** MurmurHash3_x86_32 of Austin Appleby (public domain). */
export function murmur3(bytes: Uint8Array, seed: number): number {
  let hash = seed | 0;
  const blocks = bytes.length - (bytes.length % 4);
  const byte = (index: number): number => bytes[index] ?? 0;
  for (let i = 0; i < blocks; i += 4) {
    hash ^= scramble(byte(i) | (byte(i + 1) << 8) | (byte(i + 2) << 16) | (byte(i + 3) << 24));
    hash = Math.imul(rotateLeft(hash, 13), 5) + 0xe6546b64;
  }
  // A missing tail byte reads as 0, and scramble(0) is 0: no case distinction by the tail's length is needed.
  hash ^= scramble(byte(blocks) | (byte(blocks + 1) << 8) | (byte(blocks + 2) << 16));
  hash ^= bytes.length;
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}

function scramble(block: number): number {
  return Math.imul(rotateLeft(Math.imul(block, 0xcc9e2d51), 15), 0x1b873593);
}

function rotateLeft(value: number, bits: number): number {
  return (value << bits) | (value >>> (32 - bits));
}

function utf16Bytes(text: string): Uint8Array {
  const bytes = new Uint8Array(text.length * 2);
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    bytes[2 * i] = unit & 0xff;
    bytes[2 * i + 1] = unit >>> 8;
  }
  return bytes;
}

/** The generator sfc32 ("small fast counting", Chris Doty-Humphrey, PractRand), seeded with one word and 15 discarded outputs. */
export class Random {
  private a = 0;
  private b: number;
  private c = 0;
  private counter = 1;

  /** @param seed any integer; its low 32 bits count. */
  constructor(seed: number) {
    this.b = seed | 0;
    for (let i = 0; i < 15; i++) this.word();
  }

  private word(): number {
    const output = (this.a + this.b + this.counter) | 0;
    this.counter = (this.counter + 1) | 0;
    this.a = this.b ^ (this.b >>> 9);
    this.b = (this.c + (this.c << 3)) | 0;
    this.c = (rotateLeft(this.c, 21) + output) | 0;
    return output >>> 0;
  }

  /** A double in [0, 1) with 53 random bits. */
  next(): number {
    const high = this.word() >>> 5;
    const low = this.word() >>> 6;
    return (high * 2 ** 26 + low) / 2 ** 53;
  }

  /** An integer in [0, n). @throws RangeError unless n is a positive integer. */
  int(n: number): number {
    if (!Number.isSafeInteger(n) || n < 1) throw new RangeError(`Random.int: n = ${n}, expected a positive integer`);
    return Math.floor(this.next() * n);
  }

  /** One element, all equally likely. @throws RangeError for an empty list. */
  pick<T>(list: readonly T[]): T {
    if (list.length === 0) throw new RangeError('Random.pick: the list is empty');
    return list[this.int(list.length)] as T;
  }

  /** A shuffled copy (Fisher-Yates). */
  shuffle<T>(list: readonly T[]): T[] {
    const copy = [...list];
    for (let i = copy.length - 1; i > 0; i--) {
      const j = this.int(i + 1);
      const held = copy[i] as T;
      copy[i] = copy[j] as T;
      copy[j] = held;
    }
    return copy;
  }

  /** true with probability p; p outside [0, 1] acts as the nearer bound. */
  chance(p: number): boolean {
    return this.next() < p;
  }
}
