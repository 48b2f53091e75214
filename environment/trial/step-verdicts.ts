/**
 * What the verdicts of several steps make together, as Harbor has it: with `mean` each reward's mean over the steps that have a
 * verdict, in which a reward that a step does not name counts 0; with `final` the last step's. And whether the steps go on after one.
 */
import type { Task, TaskStep, Verdict } from '../types.ts';

export interface StepVerdict {
  readonly name: string;
  readonly verdict: Verdict;
}

/** @param steps those that were run, in order; at least one */
export function combineVerdicts(steps: readonly StepVerdict[], strategy: NonNullable<Task['rewardStrategy']>): Verdict {
  const last = steps.at(-1);
  if (!last) throw new RangeError('a trial without steps has no verdict');
  const checks = steps.flatMap(({ name, verdict }) => verdict.checks.map((check) => ({ ...check, name: `${name}: ${check.name}` })));
  if (strategy === 'final') return { ...last.verdict, checks };
  const judged = steps.map(({ verdict }) => rewardsOf(verdict)).filter((rewards) => rewards !== undefined);
  if (judged.length === 0) return { ...last.verdict, checks };
  const names = [...new Set(judged.flatMap((rewards) => Object.keys(rewards)))];
  const mean = (name: string): number => judged.reduce((sum, rewards) => sum + (rewards[name] ?? 0), 0) / judged.length;
  const rewards = Object.fromEntries(names.map((name) => [name, mean(name)]));
  const reward = rewards['reward'] ?? Math.min(...Object.values(rewards));
  return {
    outcome: reward >= 1 ? 'passed' : 'failed',
    checks,
    reward,
    ...(names.length > 1 || rewards['reward'] === undefined ? { rewards } : {}),
  };
}

/** Whether the steps after this one are run: every minimum is reached. A step without verdict reaches none. */
export function reachesMinimum({ minReward }: Pick<TaskStep, 'minReward'>, verdict: Verdict): boolean {
  if (minReward === undefined) return true;
  const minima = typeof minReward === 'number' ? { reward: minReward } : minReward;
  const rewards = rewardsOf(verdict) ?? {};
  return Object.entries(minima).every(([name, minimum]) => (rewards[name] ?? -Infinity) >= minimum);
}

function rewardsOf({ reward, rewards }: Verdict): Readonly<Record<string, number>> | undefined {
  return rewards ?? (reward === undefined ? undefined : { reward });
}
