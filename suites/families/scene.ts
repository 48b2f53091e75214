/**
 * A scene is one instance in the making: it hands out unused names, holds the initial files, and collects what the jobs
 * of the task say, need and check.
 */
import type { Random } from '../../method/seeds.ts';
import { tierOf } from '../family.ts';
import type { Check, Step, TaskInstance } from '../family.ts';
import { FOLDERS, NOUNS } from './vocabulary.ts';

/** One piece of work in a task. `checks` are ordered: the strictest first, guards last. */
export interface Job {
  readonly sentence: string;
  readonly steps: readonly Step[];
  readonly checks: readonly Check[];
}
/** Adds its files to the scene and says what is to be done with them. */
export type JobMaker = (scene: Scene) => Job;

const FILLERS = 12;

export class Scene {
  readonly random: Random;
  readonly files: Record<string, string> = {};
  /** Nouns for names and for words that the task is about; each is used once. */
  private readonly nouns: string[];
  /** Nouns for the rest of the files' contents; used again in every file, so that long tasks do not run out. */
  private readonly fillers: string[];
  private readonly folders = new Set<string>();

  constructor(random: Random) {
    this.random = random;
    const nouns = random.shuffle(NOUNS);
    this.fillers = nouns.slice(0, FILLERS);
    this.nouns = nouns.slice(FILLERS);
  }

  pick<T>(list: readonly T[]): T {
    return this.random.pick(list);
  }
  /** An integer from low to high, both included. */
  number(low: number, high: number): number {
    return low + this.random.int(high - low + 1);
  }
  /** A noun that occurs nowhere else in this scene. */
  word(): string {
    const word = this.nouns.pop();
    if (word === undefined) throw new RangeError('Scene.word: all nouns are used; expected a family to need fewer');
    return word;
  }
  /** `n` different nouns of no importance; they occur in other files too, but never as a name or as what `word` gives. */
  words(n: number): string[] {
    return this.random.shuffle(this.fillers).slice(0, n);
  }
  filler(): string {
    return this.pick(this.fillers);
  }
  /** Any noun at all but this one: a slip of the agent. */
  otherNoun(noun: string): string {
    return this.pick(NOUNS.filter((candidate) => candidate !== noun));
  }
  /** A path that does not exist yet, in a folder that does. */
  path(extension: string): string {
    const folder = this.pick(FOLDERS);
    this.folders.add(folder);
    return join(folder, `${this.word()}.${extension}`);
  }
  /** An initial file of these lines; returns its path. */
  file(extension: string, fileLines: readonly string[], folder?: string): string {
    const path = folder === undefined ? this.path(extension) : join(folder, `${this.word()}.${extension}`);
    this.files[path] = text(fileLines);
    return path;
  }
  /** The same path with a wrong name: what an agent writes that mixes up names. */
  slip(path: string): string {
    const noun = this.pick(NOUNS.filter((candidate) => !path.includes(candidate)));
    return path.replace(/[a-z]+(?=\.[a-z]+$)/, noun);
  }
  textOf(path: string): string {
    const found = this.files[path];
    if (found === undefined) throw new RangeError(`Scene.textOf: no initial file ${path}; there are ${Object.keys(this.files).join(', ')}`);
    return found;
  }

  /** Every folder that a command may write into gets a file, because an empty folder cannot be shipped in a task. */
  private furnish(): void {
    for (const folder of this.folders) {
      if (folder === '' || Object.keys(this.files).some((path) => path.startsWith(`${folder}/`))) continue;
      this.files[`${folder}/${this.word()}.txt`] = text([this.filler()]);
    }
  }

  /** @param checksPerJob at most this many valid checks of each job (its strictest ones); guards are kept only when a job has the task to itself. */
  finish(family: string, jobs: readonly Job[], checksPerJob = 8): TaskInstance {
    this.furnish();
    const steps = jobs.flatMap((job) => job.steps);
    return {
      family,
      tier: tierOf(steps),
      instruction: jobs.map((job) => job.sentence).join(' '),
      files: this.files,
      checks: jobs.flatMap((job) => [
        ...job.checks.filter((check) => check.guard === undefined).slice(0, checksPerJob),
        ...(jobs.length === 1 ? job.checks.filter((check) => check.guard !== undefined) : []),
      ]),
      solution: steps.map((step) => step.right[0] ?? ''),
      steps,
    };
  }
}

export function text(fileLines: readonly string[]): string {
  return fileLines.map((line) => `${line}\n`).join('');
}
export function join(folder: string, name: string): string {
  return folder === '' ? name : `${folder}/${name}`;
}
