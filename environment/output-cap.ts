/**
 * Keeps the head and the tail of a command's output while it streams, so that no command can fill the worker's memory.
 * Bytes are kept as bytes and decoded once at the end: a multi-byte character split over two chunks stays whole, and
 * bytes that are not UTF-8 become U+FFFD instead of an error.
 */

/** Bytes of one output stream of one command that are kept: half of them from the beginning, half from the end. */
export const outputLimitBytes = 64 * 1024;

/** Stands where the middle of an output was left out. */
export const omittedMarker = (bytes: number): string => `\n[${bytes} bytes of output omitted]\n`;

export class CappedOutput {
  readonly #headLimit: number;
  readonly #tailLimit: number;
  readonly #head: Buffer[] = [];
  #headBytes = 0;
  #tail: Buffer[] = [];
  #tailBytes = 0;
  #total = 0;

  constructor(limit: number = outputLimitBytes) {
    this.#headLimit = Math.ceil(limit / 2);
    this.#tailLimit = Math.floor(limit / 2);
  }

  push(chunk: Uint8Array): void {
    this.#total += chunk.length;
    let rest = Buffer.from(chunk); // a copy: the transport may reuse its buffer
    if (this.#headBytes < this.#headLimit) {
      const part = rest.subarray(0, this.#headLimit - this.#headBytes);
      this.#head.push(part);
      this.#headBytes += part.length;
      rest = rest.subarray(part.length);
    }
    if (rest.length === 0) return;
    this.#tail.push(rest);
    this.#tailBytes += rest.length;
    // Compact now and then rather than per chunk, which would be quadratic for many small chunks.
    if (this.#tailBytes > 2 * this.#tailLimit + 4096) this.#compact();
  }

  /** The text so far: head, marker and tail where something was left out. */
  toString(): string {
    this.#compact();
    const omitted = this.#total - this.#headBytes - this.#tailBytes;
    if (omitted === 0) return decode(Buffer.concat([...this.#head, ...this.#tail]));
    return decode(Buffer.concat(this.#head)) + omittedMarker(omitted) + decode(Buffer.concat(this.#tail));
  }

  #compact(): void {
    if (this.#tailBytes <= this.#tailLimit) return;
    const joined = Buffer.concat(this.#tail);
    this.#tail = [Buffer.from(joined.subarray(joined.length - this.#tailLimit))];
    this.#tailBytes = this.#tailLimit;
  }
}

/** Caps a text that is already in memory. */
export function capText(text: string, limit: number = outputLimitBytes): string {
  if (text.length <= limit / 3) return text; // at most three bytes per UTF-16 unit
  const capped = new CappedOutput(limit);
  capped.push(Buffer.from(text, 'utf8'));
  return capped.toString();
}

function decode(bytes: Uint8Array): string {
  return new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes);
}
