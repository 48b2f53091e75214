/**
 * From check results to rewards (docs/method.md, Rewards): which checks are valid, progress, FDR, SPR, and the reward audit. Pure functions;
 * episodes without a verdict never get here, because they have no checks to score.
 */
import { mean, sampleStandardDeviation } from './statistics.ts';

export interface Check {
  readonly name: string;
  readonly passed: boolean;
}
export interface ValidCheck {
  readonly name: string;
  /** Share of the check in progress, relative to the other valid checks; positive. */
  readonly weight: number;
}

/** A name that is listed twice (parametrised tests) has passed only if every entry has. */
function passedNames(checks: readonly Check[]): Set<string> {
  const failed = new Set(checks.filter((check) => !check.passed).map((check) => check.name));
  return new Set(checks.map((check) => check.name).filter((name) => !failed.has(name)));
}

/**
 * The checks that measure the agent's work: those that fail on the untouched environment and pass after the reference solution.
 * A check the untouched run does not list counts as failed there (its test file could not even be loaded).
 * @param nop checks of the untouched environment
 * @param oracle checks after the reference solution; undefined where the task has none: then all that `nop` lists as failed are valid
 * @param weights by check name; 1 where not given
 */
export function calibrateChecks(
  nop: readonly Check[],
  oracle: readonly Check[] | undefined,
  weights: Readonly<Record<string, number>> = {},
): ValidCheck[] {
  const untouched = passedNames(nop);
  const names = oracle === undefined ? new Set(nop.map((check) => check.name)) : passedNames(oracle);
  return [...names]
    .filter((name) => !untouched.has(name))
    .map((name) => {
      const weight = weights[name] ?? 1;
      if (!(weight > 0 && Number.isFinite(weight))) throw new RangeError(`check ${name}: weight ${weight}, expected a positive number`);
      return { name, weight };
    });
}

/**
 * Progress p in [0, 1]: the weighted share of valid checks that passed. A valid check the verifier does not report counts as not passed.
 * @throws RangeError without valid checks: such a task measures nothing and must be kept out by the gate.
 */
export function progress(checks: readonly Check[], valid: readonly ValidCheck[]): number {
  if (valid.length === 0) throw new RangeError('progress: the task has no valid check; keep it out of training and evaluation');
  const passed = passedNames(checks);
  let got = 0;
  let all = 0;
  for (const { name, weight } of valid) {
    all += weight;
    if (passed.has(name)) got += weight;
  }
  return got / all;
}

export interface FamilyCalibration {
  /** Mean progress of the family's episodes. */
  readonly mean: number;
  /** What FDR divides by: the mean, but at least the floor. */
  readonly scale: number;
  readonly episodes: number;
}

/**
 * A family's calibrated mean progress, from episodes with a verdict. Which ones is the caller's choice (ours: those of the stage's
 * warm-up batch; in the reward audit the run's first training episodes); a family without any is absent and FDR then uses a mean of 1, its progress unscaled.
 */
export function calibrateFamilies(
  records: readonly { readonly family: string; readonly progress: number }[],
  floor: number,
): Record<string, FamilyCalibration> {
  const families: Record<string, FamilyCalibration> = {};
  for (const [family, values] of byFamily(records.map((record) => ({ family: record.family, value: record.progress })))) {
    const center = mean(values);
    families[family] = { mean: center, scale: Math.max(center, floor), episodes: values.length };
  }
  return families;
}

/**
 * Family Dense Reward: p / max(family mean, floor), in [0, 1 / max(mean, floor)]: a failed episode that does better than its family can exceed 1.
 * @throws RangeError where mean and floor are both 0, which leaves nothing to divide by.
 */
export function familyDenseReward(p: number, familyMean: number, floor: number): number {
  inUnit('progress', p);
  inUnit('family mean', familyMean);
  inUnit('floor', floor);
  const scale = Math.max(familyMean, floor);
  if (scale === 0) throw new RangeError('FDR: family mean and floor are both 0; set reward.fdrFloor above 0');
  return p / scale;
}

/**
 * Success-Prioritized Reward: 1 + bonus for strict success, cap × p for anything else; with cap < 1 no failed episode reaches 1.
 * @throws RangeError for a cap outside [0, 1) or a negative bonus.
 */
export function successPrioritizedReward(p: number, passed: boolean, bonus: number, cap: number): number {
  inUnit('progress', p);
  if (!(cap >= 0 && cap < 1)) throw new RangeError(`SPR: cap = ${cap}, expected a number in [0, 1)`);
  if (!(bonus >= 0)) throw new RangeError(`SPR: bonus = ${bonus}, expected a number >= 0`);
  return passed ? 1 + bonus : cap * p;
}

function inUnit(name: string, value: number): void {
  if (!(value >= 0 && value <= 1)) throw new RangeError(`reward: ${name} = ${value}, expected a number in [0, 1]`);
}

function byFamily(records: readonly { readonly family: string; readonly value: number }[]): Map<string, number[]> {
  const families = new Map<string, number[]>();
  for (const { family, value } of records) {
    const values = families.get(family);
    if (values) values.push(value);
    else families.set(family, [value]);
  }
  return families;
}

/** Mean value of each family, in order of first appearance. */
export function familyMeans(records: readonly { readonly family: string; readonly value: number }[]): Map<string, number> {
  return new Map([...byFamily(records)].map(([family, values]) => [family, mean(values)]));
}

export interface RewardAudit {
  readonly trajectories: number;
  readonly families: number;
  readonly passed: number;
  /** Share of the sum of all rewards that failed trajectories take, in [0, 1]; undefined where all rewards are 0. */
  readonly failedRewardShare?: number;
  /** Failed trajectories with a reward of 1 or more. */
  readonly failedAtLeastOne: number;
  /** Standard deviation (n − 1) of the families' mean rewards. */
  readonly familyMeanDeviation: number;
  /** Standard deviation (n − 1) of the trajectories' rewards. */
  readonly trajectoryDeviation: number;
}

/** docs/method.md, Rewards: re-scores trajectories, outcome labels unchanged, under whatever function gave `reward`. Without a verdict: leave out. */
export function rewardAudit(
  episodes: readonly { readonly family: string; readonly passed: boolean; readonly reward: number }[],
): RewardAudit {
  const rewards = episodes.map((episode) => episode.reward);
  const failed = episodes.filter((episode) => !episode.passed).map((episode) => episode.reward);
  const sum = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0);
  const total = sum(rewards);
  const means = familyMeans(episodes.map((episode) => ({ family: episode.family, value: episode.reward })));
  return {
    trajectories: episodes.length,
    families: means.size,
    passed: episodes.length - failed.length,
    ...(total > 0 ? { failedRewardShare: sum(failed) / total } : {}),
    failedAtLeastOne: failed.filter((reward) => reward >= 1).length,
    familyMeanDeviation: sampleStandardDeviation([...means.values()]),
    trajectoryDeviation: sampleStandardDeviation(rewards),
  };
}
