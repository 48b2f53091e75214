/**
 * What an activity has finished so far, on disk, so that another attempt goes on where the last one was lost.
 *
 * Invariants:
 *  I1 An entry counts once its line is complete and synced; a torn last line (crash while writing) is ignored.
 *  I2 An entry is used only for the same inputs: every line carries their fingerprint.
 *  I3 Two attempts may write at the same time (a timed-out one lives on): entries are equal then, and the first one counts.
 */
import { createHash } from 'node:crypto';
import { mkdir, open } from 'node:fs/promises';
import type { FileHandle } from 'node:fs/promises';
import path from 'node:path';
import { canonicalJson } from '../records/canonical-json.ts';

interface Line<T> {
  readonly fingerprint: string;
  readonly id: string;
  readonly value: T;
}

export class Journal<T> {
  readonly #file: FileHandle;
  readonly #fingerprint: string;
  readonly #entries: Map<string, T>;
  #tail: Promise<unknown> = Promise.resolve();

  private constructor(file: FileHandle, fingerprint: string, entries: Map<string, T>) {
    this.#file = file;
    this.#fingerprint = fingerprint;
    this.#entries = entries;
  }

  /** Opens or creates the journal. `inputs`: everything that the entries depend on. */
  static async open<T>(file: string, inputs: unknown): Promise<Journal<T>> {
    const fingerprint = createHash('sha256').update(canonicalJson(inputs)).digest('hex').slice(0, 16);
    await mkdir(path.dirname(file), { recursive: true });
    const handle = await open(file, 'a+');
    const text = await handle.readFile('utf8');
    if (text !== '' && !text.endsWith('\n')) await handle.appendFile('\n');
    const entries = new Map<string, T>();
    for (const line of text.split('\n')) {
      const entry = parse<T>(line);
      if (entry?.fingerprint === fingerprint && !entries.has(entry.id)) entries.set(entry.id, entry.value);
    }
    return new Journal(handle, fingerprint, entries);
  }

  get(id: string): T | undefined {
    return this.#entries.get(id);
  }
  get size(): number {
    return this.#entries.size;
  }

  /** Resolves when the entry is on disk. */
  async append(id: string, value: T): Promise<void> {
    const line: Line<T> = { fingerprint: this.#fingerprint, id, value };
    const text = `${JSON.stringify(line)}\n`;
    const written = this.#tail.then(async () => {
      await this.#file.appendFile(text);
      await this.#file.datasync();
    });
    this.#tail = written.catch(() => undefined);
    await written;
    this.#entries.set(id, value);
  }

  async close(): Promise<void> {
    await this.#tail;
    await this.#file.close();
  }
}

function parse<T>(line: string): Line<T> | undefined {
  if (line === '') return undefined;
  try {
    return JSON.parse(line) as Line<T>;
  } catch {
    return undefined;
  }
}
