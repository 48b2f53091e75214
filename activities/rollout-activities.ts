/** The activities of queue `terminal-rsi`, as the worker registers them. */
import type { RolloutActivities } from '../workflows/contract.ts';
import { calibrate } from './calibrate.ts';
import type { RolloutDependencies } from './dependencies.ts';
import { evaluate } from './evaluate.ts';
import { activity } from './failures.ts';
import { prepareRun } from './prepare-run.ts';
import { report } from './report.ts';
import { reward } from './reward.ts';
import { rewrite } from './rewrite.ts';
import { rollout } from './rollout.ts';
import { verify } from './verify.ts';

export function createRolloutActivities(deps: RolloutDependencies): RolloutActivities {
  return {
    prepareRun: activity((input) => prepareRun(deps, input)),
    calibrate: activity((input) => calibrate(deps, input)),
    rollout: activity((input) => rollout(deps, input)),
    verify: activity((input) => verify(deps, input)),
    rewrite: activity((input) => rewrite(deps, input)),
    reward: activity((input) => reward(deps, input)),
    evaluate: activity((input) => evaluate(deps, input)),
    report: activity((input) => report(deps, input)),
  };
}
