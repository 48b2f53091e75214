/**
 * Reads the output of a supervisor (exec.ts): Docker's multiplexed stream taken apart, marks found in it. What is not a mark is a
 * command's output. Bytes stay bytes: nothing is decoded per chunk.
 */

/** Splits Docker's multiplexed stream: 8 bytes of header (stream number, 3 zeros, length) before each payload. */
export class Demultiplexer {
  readonly #receive: (source: 'stdout' | 'stderr', payload: Buffer) => void;
  #rest = Buffer.alloc(0);

  constructor(receive: (source: 'stdout' | 'stderr', payload: Buffer) => void) {
    this.#receive = receive;
  }

  push(chunk: Buffer): void {
    let data = this.#rest.length === 0 ? chunk : Buffer.concat([this.#rest, chunk]);
    while (data.length >= 8) {
      const length = data.readUInt32BE(4);
      if (data.length < 8 + length) break;
      this.#receive(data[0] === 2 ? 'stderr' : 'stdout', data.subarray(8, 8 + length));
      data = data.subarray(8 + length);
    }
    this.#rest = Buffer.from(data);
  }
}

/** Longer than any mark: a line that begins like one and does not end within so many bytes is output. */
const markLimit = 64 * 1024;

/** Takes marks `<word>.<text>\n` out of one output stream. A mark may follow output without a line break and may be split over chunks. */
export class MarkReader {
  readonly #start: Buffer;
  readonly #onOutput: (bytes: Buffer) => void;
  readonly #onMark: (text: string) => void;
  #pending = Buffer.alloc(0);

  constructor(word: string, onOutput: (bytes: Buffer) => void, onMark: (text: string) => void) {
    this.#start = Buffer.from(`${word}.`);
    this.#onOutput = onOutput;
    this.#onMark = onMark;
  }

  push(chunk: Buffer): void {
    let data = this.#pending.length === 0 ? chunk : Buffer.concat([this.#pending, chunk]);
    for (;;) {
      const at = data.indexOf(this.#start);
      const end = at === -1 ? -1 : data.indexOf(10, at);
      if (end === -1) {
        // What may be the beginning of a mark stays behind.
        const keep = at !== -1 && data.length - at < markLimit ? data.length - at : Math.min(data.length, this.#start.length - 1);
        this.#output(data.subarray(0, data.length - keep));
        this.#pending = Buffer.from(data.subarray(data.length - keep));
        return;
      }
      this.#output(data.subarray(0, at));
      const text = data.subarray(at + this.#start.length, end).toString();
      data = data.subarray(end + 1);
      this.#onMark(text);
    }
  }

  /** The stream ended, or its reader is done with it: what looked like the beginning of a mark was output. */
  flush(): void {
    this.#output(this.#pending);
    this.#pending = Buffer.alloc(0);
  }

  #output(bytes: Buffer): void {
    if (bytes.length > 0) this.#onOutput(bytes);
  }
}
