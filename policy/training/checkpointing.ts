/**
 * Resumable checkpoints of a training activity. The truth is on disk:
 *
 *   <directory>/fence                  id of the attempt that may write
 *   <directory>/step-00000008/...      weights, moments, loop state
 *   <directory>/step-00000008.json     manifest, written last: hashes of those files
 *
 * Invariants:
 *  1. A checkpoint counts only if its manifest exists, belongs to the same inputs, and every file has the hash it names.
 *  2. An attempt commits only while the fence holds its id: one that timed out but still runs cannot overwrite its successor.
 *  3. Everything is written under a temporary name and renamed.
 *  4. A full or failing disk is an InfrastructureError; the checkpoints before it stay what they were.
 */
import { createHash, randomUUID } from 'node:crypto';
import { mkdir, open, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { z } from 'zod';
import { InfrastructureError, onStorage, storageError } from '../../environment/errors.ts';
import { canonicalJson } from '../../records/canonical-json.ts';

const KEPT = 2;
const manifestSchema = z.object({
  version: z.literal(1),
  step: z.number().int().min(0),
  inputHash: z.string(),
  attempt: z.string(),
  files: z.record(z.string(), z.string()),
});

/** A newer attempt of the same activity has taken over; this one must stop. */
export class FencedError extends InfrastructureError {
  readonly code = 'fenced';
}

export interface ResumePoint {
  readonly step: number;
  readonly directory: string;
}

export class Checkpoints {
  readonly #directory: string;
  readonly #inputHash: string;
  readonly #attempt = randomUUID();

  private constructor(directory: string, inputHash: string) {
    this.#directory = directory;
    this.#inputHash = inputHash;
  }

  /** Takes the fence: from here on no earlier attempt can commit. */
  static async claim(directory: string, inputHash: string): Promise<Checkpoints> {
    const checkpoints = new Checkpoints(directory, inputHash);
    await onStorage(directory, async () => {
      await mkdir(directory, { recursive: true });
      // What lost attempts left goes first: it may be what fills the disk.
      for (const name of await readdir(directory)) {
        if (name.includes('.tmp-')) await rm(join(directory, name), { recursive: true, force: true });
      }
      await writeDurably(join(directory, 'fence'), checkpoints.#attempt, checkpoints.#attempt);
    });
    return checkpoints;
  }

  /** @throws FencedError when a newer attempt holds the fence */
  async assertHeld(): Promise<void> {
    const holder = await readFile(join(this.#directory, 'fence'), 'utf8').catch(() => '(none)');
    if (holder !== this.#attempt) throw new FencedError(`attempt ${this.#attempt} lost the fence of ${this.#directory} to ${holder}`);
  }

  /** The newest checkpoint of these inputs whose files have the hashes their manifest names. */
  async newest(): Promise<ResumePoint | undefined> {
    for (const step of (await this.#steps()).reverse()) {
      if (await this.#intact(step)) return { step, directory: this.#path(step) };
    }
    return undefined;
  }

  /** Has `write` fill an empty directory, then makes it the checkpoint of `step`. */
  async commit(step: number, write: (directory: string) => Promise<void>): Promise<void> {
    const temporary = `${this.#path(step)}.tmp-${this.#attempt}`;
    try {
      await onStorage(temporary, async () => {
        await rm(temporary, { recursive: true, force: true });
        await mkdir(temporary, { recursive: true });
        await write(temporary);
        const files = await hashFiles(temporary, true);
        await this.assertHeld();
        await rm(`${this.#path(step)}.json`, { force: true });
        await rm(this.#path(step), { recursive: true, force: true });
        await rename(temporary, this.#path(step));
        const manifest: z.infer<typeof manifestSchema> = { version: 1, step, inputHash: this.#inputHash, attempt: this.#attempt, files };
        await writeDurably(`${this.#path(step)}.json`, canonicalJson(manifest), this.#attempt);
      });
    } catch (error) {
      // Half a checkpoint on a full disk would keep it full.
      await rm(temporary, { recursive: true, force: true }).catch(() => undefined);
      throw error;
    }
    for (const old of (await this.#steps()).slice(0, -KEPT)) await this.#remove(old);
  }

  #path(step: number): string {
    return join(this.#directory, `step-${String(step).padStart(8, '0')}`);
  }
  async #remove(step: number): Promise<void> {
    // The manifest first: a directory without one does not count.
    await rm(`${this.#path(step)}.json`, { force: true });
    await rm(this.#path(step), { recursive: true, force: true });
  }
  async #steps(): Promise<number[]> {
    const names = await readdir(this.#directory);
    return names
      .flatMap((name) => /^step-(\d{8})\.json$/.exec(name)?.[1] ?? [])
      .map(Number)
      .sort((a, b) => a - b);
  }
  async #intact(step: number): Promise<boolean> {
    try {
      const manifest = manifestSchema.parse(JSON.parse(await readFile(`${this.#path(step)}.json`, 'utf8')));
      if (manifest.inputHash !== this.#inputHash) return false;
      return canonicalJson(await hashFiles(this.#path(step), false)) === canonicalJson(manifest.files);
    } catch (error) {
      // A disk that cannot be read now may hold a good checkpoint.
      const failing = storageError(error, this.#path(step));
      if (failing) throw failing;
      return false;
    }
  }
}

/** Path relative to `directory` → hex SHA-256 of every file below it; with `sync`, also forces the bytes to disk. */
async function hashFiles(directory: string, sync: boolean): Promise<Record<string, string>> {
  const files: Record<string, string> = {};
  const entries = await readdir(directory, { recursive: true, withFileTypes: true });
  for (const entry of entries) {
    if (!entry.isFile()) continue;
    const path = join(entry.parentPath, entry.name);
    const file = await open(path, 'r');
    try {
      files[relative(directory, path)] = createHash('sha256')
        .update(await file.readFile())
        .digest('hex');
      if (sync) await file.sync();
    } finally {
      await file.close();
    }
  }
  return files;
}

/** SHA-256 over everything that decides a training loop's result: its settings and data, and the bytes of its model directories. */
export async function inputHash(settings: unknown, directories: readonly (string | undefined)[]): Promise<string> {
  const contents = [];
  for (const directory of directories) contents.push(directory === undefined ? null : await hashFiles(directory, false));
  return createHash('sha256').update(canonicalJson({ settings, contents })).digest('hex');
}

/** Temporary name, fsync, rename. */
async function writeDurably(path: string, text: string, attempt: string): Promise<void> {
  const temporary = `${path}.tmp-${attempt}`;
  try {
    await writeFile(temporary, text, { flush: true });
    await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true }).catch(() => undefined);
    throw error;
  }
}
