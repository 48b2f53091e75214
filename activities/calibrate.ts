/**
 * The gate (docs/method.md, Evaluation): every task is run once with "do nothing", which must fail, and once with its
 * reference solution, which must pass. Tasks that do not are left out of the run, with the reason; the others get
 * their valid checks.
 */
import { activityInfo, cancellationSignal } from '@temporalio/activity';
import path from 'node:path';
import { InfrastructureError, TaskError } from '../environment/errors.ts';
import { runCommands, runOracle } from '../environment/harness/harness.ts';
import type { SandboxProvider, Task, Verdict } from '../environment/types.ts';
import { calibrateChecks } from '../method/rewards.ts';
import type { ValidCheck } from '../method/rewards.ts';
import type { Calibration, TaskCalibration } from '../records/calibration.ts';
import { taskKey } from '../records/calibration.ts';
import type { CalibrateInput, CalibrateResult, TaskListing } from '../workflows/contract.ts';
import { sourceHash } from './code-version.ts';
import { forEachConcurrently } from './concurrency.ts';
import type { RolloutDependencies } from './dependencies.ts';
import { startHeartbeat } from './heartbeat.ts';
import { Journal } from './journal.ts';
import { judge, triesInMemory } from './judge.ts';
import { startingAgain } from './lost-parts.ts';
import { VERIFICATIONS } from './verify.ts';

type Gate = { readonly validChecks: readonly ValidCheck[] } | { readonly rejected: string };

export async function calibrate(deps: RolloutDependencies, input: CalibrateInput): Promise<CalibrateResult> {
  const { runKey, sandbox, tasks } = input;
  const provider = deps.provider(sandbox);
  // Shared by all runs: what a task's gate gives depends on the task's bytes and on the code that runs it, both in the key.
  const file = path.join(deps.data, 'calibration', `${sandbox}.jsonl`);
  const journal = await Journal.open<Gate>(file, { sandbox, code: await sourceHash(['environment', 'activities', 'method']) });
  const beat = startHeartbeat(() => ({ done: journal.size, total: tasks.length }));
  try {
    await forEachConcurrently(tasks, VERIFICATIONS, cancellationSignal(), async (listing, signal) => {
      if (journal.get(listing.checksum)) return;
      const found = await startingAgain(signal, () => gate(deps, provider, listing, runKey, signal));
      await journal.append(listing.checksum, found);
    });
    const accepted: Record<string, TaskCalibration> = {};
    const rejected: { task: string; reason: string }[] = [];
    for (const listing of tasks) {
      const name = taskKey({ suite: listing.suite, taskId: listing.id });
      const found = journal.get(listing.checksum);
      if (!found) throw new InfrastructureError(`task ${name} is missing in ${file}`);
      if ('rejected' in found) rejected.push({ task: name, reason: found.rejected });
      else accepted[name] = { checksum: listing.checksum, family: listing.family, validChecks: found.validChecks };
    }
    const calibration: Calibration = { schema: 'terminal-rsi/calibration@1', tasks: accepted };
    return { calibration: await deps.store.putJson('calibration', calibration), gatedTasks: Object.keys(accepted).length, rejected };
  } finally {
    beat.stop();
    await journal.close();
  }
}

async function gate(
  deps: RolloutDependencies,
  provider: SandboxProvider,
  listing: TaskListing,
  runKey: string,
  signal: AbortSignal,
): Promise<Gate> {
  let task: Task;
  try {
    task = await deps.task(listing);
  } catch (error) {
    if (error instanceof TaskError) return { rejected: error.message };
    throw error;
  }
  const refusal = provider.refusal(task);
  if (refusal !== undefined) return { rejected: refusal };
  const { workflowExecution } = activityInfo();
  const common = { task, provider, runKey, signal, ...(workflowExecution ? { workflow: workflowExecution } : {}) };
  const base = { ...common, suite: listing.suite };
  const judging = { ...common, tries: triesInMemory() };
  const limits = { maxTurns: 1, maxTokensPerTurn: 1, observationTokens: 1, commandTimeoutSec: task.agentTimeoutSec };
  const idle = await runCommands({
    ...base,
    ...{ episodeId: `calibrate/${listing.suite}/${listing.id}/nop`, agent: 'nop', commands: [], harness: 'shell', purpose: 'check' },
    ...{ sample: 0, seed: 0, limits, contextLength: Infinity },
  });
  const nop = await judge({ ...judging, snapshot: idle.snapshot });
  if (nop.outcome !== 'failed') return { rejected: `doing nothing: ${describe(nop)}, expected to fail` };
  let oracle: Verdict | undefined;
  if (task.solution) {
    const solved = await runOracle({ ...base, episodeId: `calibrate/${listing.suite}/${listing.id}/oracle` });
    oracle = await judge({ ...judging, snapshot: solved.snapshot });
    if (oracle.outcome !== 'passed') return { rejected: `the reference solution: ${describe(oracle)}, expected to pass` };
  }
  const validChecks = calibrateChecks(nop.checks, oracle?.checks);
  return validChecks.length > 0 ? { validChecks } : { rejected: 'no check fails before and passes after the reference solution' };
}

function describe({ outcome, error }: Verdict): string {
  return error ? `${outcome} (${error.type}: ${error.message})` : outcome;
}
