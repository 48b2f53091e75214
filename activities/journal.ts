/**
 * What an activity has finished so far, on disk, so that another attempt goes on where the last one was lost.
 *
 * A line is `<check> <json>`; the check is the first 16 hex digits of the JSON's SHA-256.
 *
 * Invariants:
 *  I1 An entry counts once its line is whole and synced. A line that is not (torn by a crash or a full disk, changed on
 *     disk) is not an entry: its work is done again.
 *  I2 An entry is used only for the same inputs: every line carries their fingerprint.
 *  I3 Two attempts may write at the same time (a timed-out one lives on): entries are equal then, and the first one counts.
 */
import { createHash } from 'node:crypto';
import { mkdir, open } from 'node:fs/promises';
import type { FileHandle } from 'node:fs/promises';
import path from 'node:path';
import { onStorage } from '../environment/errors.ts';
import { canonicalJson } from '../records/canonical-json.ts';

interface Line<T> {
  readonly fingerprint: string;
  readonly id: string;
  readonly value: T;
}

export class Journal<T> {
  readonly #path: string;
  readonly #file: FileHandle;
  readonly #fingerprint: string;
  readonly #entries: Map<string, T>;
  /** Lines that are not whole; their work is done again. */
  readonly damaged: number;
  /** The last write may have left a part of a line. */
  #torn: boolean;
  #tail: Promise<unknown> = Promise.resolve();

  private constructor(
    file: { path: string; handle: FileHandle; torn: boolean; damaged: number },
    fingerprint: string,
    entries: Map<string, T>,
  ) {
    this.#path = file.path;
    this.#file = file.handle;
    this.#torn = file.torn;
    this.damaged = file.damaged;
    this.#fingerprint = fingerprint;
    this.#entries = entries;
  }

  /**
   * Opens or creates the journal. `inputs`: everything that the entries depend on.
   * @throws InfrastructureError when the disk is full or fails
   */
  static async open<T>(file: string, inputs: unknown): Promise<Journal<T>> {
    const fingerprint = hash(canonicalJson(inputs));
    const { handle, text } = await onStorage(file, async () => {
      await mkdir(path.dirname(file), { recursive: true });
      const handle = await open(file, 'a+');
      try {
        return { handle, text: await handle.readFile('utf8') };
      } catch (error) {
        await handle.close();
        throw error;
      }
    });
    const entries = new Map<string, T>();
    let damaged = 0;
    for (const line of text.split('\n')) {
      if (line === '') continue;
      const entry = parse<T>(line);
      if (entry === undefined) damaged++;
      else if (entry.fingerprint === fingerprint && !entries.has(entry.id)) entries.set(entry.id, entry.value);
    }
    return new Journal({ path: file, handle, damaged, torn: text !== '' && !text.endsWith('\n') }, fingerprint, entries);
  }

  get(id: string): T | undefined {
    return this.#entries.get(id);
  }
  get size(): number {
    return this.#entries.size;
  }

  /** Resolves when the entry is on disk. @throws InfrastructureError when the disk is full or fails; the journal stays usable */
  async append(id: string, value: T): Promise<void> {
    const line: Line<T> = { fingerprint: this.#fingerprint, id, value };
    const json = JSON.stringify(line);
    const written = this.#tail.then(() =>
      onStorage(this.#path, async () => {
        // What a write on a full disk left of its line must not become the beginning of this one.
        const text = `${this.#torn ? '\n' : ''}${hash(json)} ${json}\n`;
        this.#torn = true;
        await this.#file.appendFile(text);
        await this.#file.datasync();
        this.#torn = false;
      }),
    );
    this.#tail = written.catch(() => undefined);
    await written;
    this.#entries.set(id, value);
  }

  async close(): Promise<void> {
    await this.#tail;
    await this.#file.close();
  }
}

function hash(text: string): string {
  return createHash('sha256').update(text).digest('hex').slice(0, 16);
}

/** undefined for a line that is not whole. */
function parse<T>(line: string): Line<T> | undefined {
  const json = line.slice(17);
  return line.slice(0, 17) === `${hash(json)} ` ? (JSON.parse(json) as Line<T>) : undefined;
}
