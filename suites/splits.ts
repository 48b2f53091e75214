/**
 * Which instance belongs to which split. Evaluation and dev instances are generated first, from reserved seeds; training
 * instances and pre-training demonstrations come from other seeds and are drawn again if they happen to equal one that
 * is taken.
 *
 * Invariants (tested):
 *  1. No identity (instruction and files) occurs twice over all suites and `train`.
 *  2. No demonstration has the identity of a suite's or training task.
 *  3. Held-out families occur in `transfer` only.
 */
import { Random, deriveSeed } from '../method/seeds.ts';
import type { Tier } from '../environment/types.ts';
import type { SuiteMetric } from '../workflows/contract.ts';
import type { Family, TaskInstance } from './family.ts';
import { identity } from './family.ts';
import { FAMILIES, HELD_OUT, LONG_HORIZON, TRAINED, WORKFLOW } from './families/index.ts';

export interface SuitePlan {
  readonly name: string;
  readonly metric: SuiteMetric;
  /** Counts in the four-suite mean. */
  readonly headline: boolean;
  readonly size: number;
  readonly families: readonly Family[];
}

export const TRAIN = 'train';
/** Training tasks of each trained family. */
const TRAIN_PER_FAMILY = 8;
/** How often an instance is drawn again when it is taken. */
const DRAWS = 100;

const special = new Set<string>([...LONG_HORIZON, WORKFLOW]);
/** Trained families of these tiers, the tiers taking turns, without the families that have a suite of their own. */
function ofTiers(...tiers: readonly Tier[]): Family[] {
  const columns = tiers.map((tier) => TRAINED.filter((family) => family.tier === tier && !special.has(family.name)));
  const longest = Math.max(...columns.map((column) => column.length));
  return Array.from({ length: longest }, (_, i) => columns.map((column) => column[i % column.length]))
    .flat()
    .filter((family) => family !== undefined);
}
function named(...names: readonly string[]): Family[] {
  return FAMILIES.filter((family) => names.includes(family.name));
}

/** Evaluation suites in the roles of the paper's six, then `dev`, which decides on adoption and nothing else. */
export const SUITES: readonly SuitePlan[] = [
  { name: 'core', metric: 'strict', headline: true, size: 24, families: ofTiers('easy', 'medium') },
  { name: 'broad', metric: 'strict', headline: true, size: 24, families: ofTiers('medium', 'hard') },
  { name: 'transfer', metric: 'strict', headline: true, size: 18, families: HELD_OUT },
  { name: 'hard', metric: 'strict', headline: true, size: 20, families: ofTiers('hard', 'extreme') },
  { name: 'long-horizon', metric: 'process', headline: false, size: 12, families: named(...LONG_HORIZON) },
  { name: 'workflow-rebuild', metric: 'strict', headline: false, size: 12, families: named(WORKFLOW) },
  { name: 'dev', metric: 'strict', headline: false, size: 32, families: spread(TRAINED, 32) },
];

/** `n` families spread evenly over the list, so that a suite smaller than the list still has every tier. */
function spread(families: readonly Family[], n: number): Family[] {
  return Array.from({ length: n }, (_, i) => families[Math.floor((i * families.length) / n)]).filter((family) => family !== undefined);
}

export interface SplitTask {
  readonly suite: string;
  readonly id: string;
  readonly instance: TaskInstance;
  readonly identity: string;
}

/** An instance whose identity is not in `taken`; adds it there. */
function draw(family: Family, taken: Set<string>, seed: (attempt: number) => number): { instance: TaskInstance; identity: string } {
  for (let attempt = 0; attempt < DRAWS; attempt++) {
    const instance = family.generate(new Random(seed(attempt)));
    const id = identity(instance);
    if (taken.has(id)) continue;
    taken.add(id);
    return { instance, identity: id };
  }
  throw exhausted(family);
}

let cached: { tasks: readonly SplitTask[]; identities: ReadonlySet<string> } | undefined;

/** All tasks of all suites and of `train`, in order. Computed once; about 600 instances, some ten milliseconds. */
export function allTasks(): { tasks: readonly SplitTask[]; identities: ReadonlySet<string> } {
  if (cached !== undefined) return cached;
  const taken = new Set<string>();
  const tasks: SplitTask[] = [];
  const add = (suite: string, families: readonly Family[]): void => {
    const numbers = new Map<string, number>();
    for (const family of families) {
      const number = (numbers.get(family.name) ?? 0) + 1;
      numbers.set(family.name, number);
      const drawn = draw(family, taken, (attempt) =>
        deriveSeed(suite === TRAIN ? 'train' : 'evaluation', suite, family.name, number, attempt),
      );
      tasks.push({ suite, id: `${family.name}-${number}`, ...drawn });
    }
  };
  for (const { name, size, families } of SUITES)
    add(
      name,
      Array.from({ length: size }, (_, i) => families[i % families.length]).filter((family) => family !== undefined),
    );
  add(
    TRAIN,
    TRAINED.flatMap((family) => Array.from({ length: TRAIN_PER_FAMILY }, () => family)),
  );
  cached = { tasks, identities: taken };
  return cached;
}

/** An instance for a pre-training demonstration: equal to no task of any suite nor of `train`. */
export function demonstrationInstance(family: Family, seed: number, number: number): TaskInstance {
  const { identities } = allTasks();
  for (let attempt = 0; attempt < DRAWS; attempt++) {
    const instance = family.generate(new Random(deriveSeed('demonstration', seed, family.name, number, attempt)));
    if (!identities.has(identity(instance))) return instance;
  }
  throw exhausted(family);
}

function exhausted(family: Family): RangeError {
  return new RangeError(`Family ${family.name}: no new instance in ${DRAWS} draws; expected a family with thousands of instances`);
}
