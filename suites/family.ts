/**
 * What a task family is: a generator of task instances that differ in names, numbers and file contents. Everything else
 * in suites/ is built from this: Harbor task directories (render.ts), splits (splits.ts), noisy demonstrations
 * (demonstrations.ts).
 */
import { createHash } from 'node:crypto';
import type { Tier } from '../environment/types.ts';
import type { Random } from '../method/seeds.ts';

/** A condition on the final state of /app: a bash command that runs in /app and succeeds if the check passes. */
export interface Check {
  /** Unique within the task; letters, digits and hyphens. */
  readonly name: string;
  readonly shell: string;
  /**
   * A guard already passes on the untouched environment ("the input is still there"). It counts for strict success, but
   * is not a *valid* check in docs/method.md's sense.
   */
  readonly guard?: true;
}

/** One thing that has to be done, with the ways in which an agent gets it right and wrong. */
export interface Step {
  /** Equivalent correct one-line commands; the first is the reference solution's. */
  readonly right: readonly string[];
  /** Plausible mistakes: wrong flag, file, number or order, a forgotten redirection. */
  readonly wrong: readonly string[];
  /** Inspection commands, in order, whose output the right command depends on. Absent where the instruction says everything. */
  readonly looks?: readonly string[];
}

export interface TaskInstance {
  readonly family: string;
  readonly tier: Tier;
  readonly instruction: string;
  /** Initial files: path relative to /app → text. */
  readonly files: Readonly<Record<string, string>>;
  readonly checks: readonly Check[];
  /** Commands that solve the task. */
  readonly solution: readonly string[];
  readonly steps: readonly Step[];
}

export interface Family {
  readonly name: string;
  readonly tier: Tier;
  /** Never in training, dev or the pre-training demonstrations. */
  readonly heldOut?: true;
  readonly summary: string;
  generate(random: Random): TaskInstance;
}

/** Structural difficulty: necessary commands plus files that must be read first. */
export function difficulty(steps: readonly Step[]): number {
  return steps.reduce((sum, step) => sum + 1 + (step.looks?.length ?? 0), 0);
}

/** The tier of a task by its structural difficulty: 1 easy, 2 medium, 3-4 hard, 5 and more extreme. */
export function tierOf(steps: readonly Step[]): Tier {
  const d = difficulty(steps);
  if (d <= 1) return 'easy';
  if (d === 2) return 'medium';
  return d <= 4 ? 'hard' : 'extreme';
}

/** Hex SHA-256 over what the agent is given: two instances with equal identity are the same task. */
export function identity(instance: Pick<TaskInstance, 'instruction' | 'files'>): string {
  const hash = createHash('sha256').update(instance.instruction);
  for (const path of Object.keys(instance.files).sort()) hash.update(`\0${path}\0${instance.files[path]}`);
  return hash.digest('hex');
}
