/**
 * Reads the durable work of a run off its data folder: journal entries, training checkpoints, artifacts. Every piece has a name
 * that is the same in every run of the same configuration and seed, so that what an undisturbed run did tells when to disturb
 * another one. Reading files and nothing else: the run neither knows nor waits.
 */
import { existsSync, readFileSync, readdirSync, statSync } from 'node:fs';
import path from 'node:path';

export type MarkKind = 'task' | 'episode' | 'verdict' | 'rewrite' | 'checkpoint-writing' | 'checkpoint' | 'training-end' | 'artifact';

export interface Mark {
  readonly kind: MarkKind;
  /** e.g. `RSR-1/rollout/0-verdicts.jsonl#7`, `RPR-1/warm-up/checkpoint#3`. */
  readonly name: string;
  /** Stage and purpose, e.g. `RSR-1/rollout`; empty for artifacts, which carry no such thing. */
  readonly group: string;
  /** Milliseconds since the epoch at which it was seen. */
  readonly at: number;
}

/** A checkpoint that is being written is not yet work that survives. */
export const isDurable = ({ kind }: Mark): boolean => kind !== 'checkpoint-writing';

/** Artifacts lie in 256 folders; looking at all of them each time would be felt on a small machine. */
const ARTIFACTS_EVERY_MS = 40;

export class Marks {
  readonly #data: string;
  readonly #seen = new Map<string, Mark>();
  readonly #lines = new Map<string, { bytes: number; lines: number }>();
  readonly #steps = new Map<string, Set<string>>();
  readonly #blobFolders = new Map<string, number>();
  #artifactsAt = 0;
  #durable = 0;

  constructor(data: string) {
    this.#data = data;
  }

  get all(): readonly Mark[] {
    return [...this.#seen.values()];
  }
  /** How many pieces of durable work there are. */
  get size(): number {
    return this.#durable;
  }
  get(name: string): Mark | undefined {
    return this.#seen.get(name);
  }

  /** What is new since the last call, in no particular order. */
  scan(now = Date.now()): Mark[] {
    const found: Mark[] = [];
    const add = (kind: MarkKind, group: string, name: string): void => {
      if (this.#seen.has(name)) return;
      const mark: Mark = { kind, group, name, at: now };
      this.#seen.set(name, mark);
      if (isDurable(mark)) this.#durable++;
      found.push(mark);
    };
    for (const file of list(path.join(this.#data, 'calibration')))
      this.#addLines('task', 'Base/calibrate', `calibration/${file}`, path.join(this.#data, 'calibration', file), add);
    for (const run of list(path.join(this.#data, 'runs'))) {
      const home = path.join(this.#data, 'runs', run);
      this.#scanJournals(path.join(home, 'journal'), add);
      this.#scanCheckpoints(path.join(home, 'checkpoints'), add);
    }
    if (now - this.#artifactsAt >= ARTIFACTS_EVERY_MS) {
      this.#artifactsAt = now;
      this.#scanArtifacts(add);
    }
    return found;
  }

  #scanJournals(home: string, add: Add): void {
    for (const stage of list(home)) {
      for (const purpose of list(path.join(home, stage))) {
        const folder = path.join(home, stage, purpose);
        const group = `${stage}/${purpose}`;
        // Failed tries of a verification are journalled so that they count over attempts; they are no work done.
        for (const file of list(folder).filter((name) => !name.includes('-tries'))) {
          const kind = purpose === 'rewrite' ? 'rewrite' : file.includes('-verdicts') ? 'verdict' : 'episode';
          this.#addLines(kind, group, `${group}/${file}`, path.join(folder, file), add);
        }
      }
    }
  }

  #addLines(kind: MarkKind, group: string, name: string, file: string, add: Add): void {
    const size = sizeOf(file);
    const known = this.#lines.get(file) ?? { bytes: 0, lines: 0 };
    if (size <= known.bytes) return;
    const text = readFileSync(file);
    let lines = 0;
    for (const byte of text) if (byte === 0x0a) lines++;
    this.#lines.set(file, { bytes: text.byteLength, lines });
    for (let line = known.lines + 1; line <= lines; line++) add(kind, group, `${name}#${line}`);
  }

  /** Which steps get a checkpoint is a matter of time, so they are counted: the first of an activity, the second, … */
  #scanCheckpoints(home: string, add: Add): void {
    for (const stage of list(home)) {
      for (const purpose of list(path.join(home, stage))) {
        const group = `${stage}/${purpose}`;
        const counted = (part: string, step: string): string => {
          const key = `${group}/${part}`;
          const steps = this.#steps.get(key) ?? new Set();
          this.#steps.set(key, steps.add(step));
          return `${key}#${[...steps].indexOf(step) + 1}`;
        };
        for (const file of list(path.join(home, stage, purpose, 'steps'))) {
          const [, step, rest = ''] = /^(step-\d+)(.*)$/.exec(file) ?? [];
          if (step === undefined) continue;
          if (rest.startsWith('.tmp-')) add('checkpoint-writing', group, counted('unfinished-checkpoint', step));
          else if (rest === '.json') add('checkpoint', group, counted('checkpoint', step));
        }
        this.#addLines('training-end', group, `${group}/result`, path.join(home, stage, purpose, 'result.jsonl'), add);
      }
    }
  }

  #scanArtifacts(add: Add): void {
    const root = path.join(this.#data, 'artifacts', 'sha256');
    for (const folder of list(root)) {
      const changed = statSync(path.join(root, folder), { throwIfNoEntry: false })?.mtimeMs ?? 0;
      if (this.#blobFolders.get(folder) === changed) continue;
      this.#blobFolders.set(folder, changed);
      for (const sha256 of list(path.join(root, folder))) add('artifact', '', `artifact:${sha256}`);
    }
  }
}

type Add = (kind: MarkKind, group: string, name: string) => void;

/** Where an artifact's blob lies in the data folder. */
export function blobFile(data: string, sha256: string): string {
  return path.join(data, 'artifacts', 'sha256', sha256.slice(0, 2), sha256);
}

/** Names in a folder; none where it is not there (yet, or any more). */
function list(folder: string): string[] {
  if (!existsSync(folder)) return [];
  try {
    return readdirSync(folder);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw error;
  }
}

function sizeOf(file: string): number {
  return statSync(file, { throwIfNoEntry: false })?.size ?? 0;
}
