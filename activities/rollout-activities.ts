/** The activities of queue `terminal-rsi`, as the worker registers them. */
import type { RolloutActivities } from '../workflows/contract.ts';
import { calibrate } from './calibrate.ts';
import type { RolloutDependencies } from './dependencies.ts';
import { evaluate } from './evaluate.ts';
import { activity } from './failures.ts';
import { beating } from './heartbeat.ts';
import { closeJob, openJob, planTrials } from './jobs.ts';
import { prepareRun } from './prepare-run.ts';
import { closeRun, openStage, recordStage } from './record-stage.ts';
import { report } from './report.ts';
import { reward } from './reward.ts';
import { rewrite } from './rewrite.ts';
import { rollout } from './rollout.ts';
import { runTrial } from './run-trial.ts';
import { verify } from './verify.ts';

export function createRolloutActivities(deps: RolloutDependencies): RolloutActivities {
  return {
    prepareRun: activity(beating((input) => prepareRun(deps, input))),
    calibrate: activity((input) => calibrate(deps, input)),
    rollout: activity((input) => rollout(deps, input)),
    verify: activity((input) => verify(deps, input)),
    rewrite: activity((input) => rewrite(deps, input)),
    reward: activity(beating((input) => reward(deps, input))),
    evaluate: activity(beating((input) => evaluate(deps, input))),
    report: activity(beating((input) => report(deps, input))),
    collectChunks: activity(beating((input) => deps.store.putJsonLines('chunks', input.chunks))),
    openStage: activity(beating((input) => openStage(deps, input))),
    recordStage: activity(beating((input) => recordStage(deps, input))),
    closeRun: activity(beating((input) => closeRun(deps, input))),
    openJob: activity(beating((input) => openJob(deps, input))),
    planTrials: activity(beating((input) => planTrials(deps, input))),
    runTrial: activity((input) => runTrial(deps, input)),
    closeJob: activity(beating((input) => closeJob(deps, input))),
    sweep: activity(beating(async ({ runKey, sandbox }) => ({ removed: await deps.provider(sandbox).sweep(runKey) }))),
  };
}
