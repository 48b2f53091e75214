/** The gate that every built-in task has to pass, for tests: what doing nothing and what the reference solution earn. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { runCommands, runOracle } from '../environment/harness/harness.ts';
import { loadTask } from '../environment/tasks/task.ts';
import type { SandboxProvider, Verdict } from '../environment/types.ts';
import { verify } from '../environment/verifier/verifier.ts';
import type { RenderedTask } from './build.ts';
import { suiteDirectory } from './suites.ts';

const labels = { runKey: 'suites-test', episodeId: 'task', purpose: 'check' } as const;
const limits = { maxTurns: 16, maxTokensPerTurn: 100, observationTokens: 100, commandTimeoutSec: 10 };

/** Verdicts of doing nothing and of the reference solution, through the same path as a run's episodes. */
export async function gate({ suite, id }: RenderedTask, provider: SandboxProvider): Promise<{ nop: Verdict; solved: Verdict }> {
  const task = await loadTask(join(suiteDirectory(suite), id));
  const base = { episodeId: 'task', suite, task, provider, runKey: labels.runKey };
  const nop = await runCommands({ ...base, agent: 'nop', harness: 'shell', sample: 0, seed: 0, limits, contextLength: 1, commands: [] });
  const oracle = await runOracle(base);
  const judge = (snapshot: typeof nop.snapshot): Promise<Verdict> => verify({ task, snapshot, provider, labels });
  return { nop: await judge(nop.snapshot), solved: await judge(oracle.snapshot) };
}

/** @throws AssertionError unless the task is sound: nothing earns nothing, the solution passes, and what is no guard is a valid check. */
export function assertSound(task: RenderedTask, { nop, solved }: { nop: Verdict; solved: Verdict }): void {
  const place = `${task.suite}/${task.id}`;
  const names = (verdict: Verdict): string[] => verdict.checks.filter((check) => check.passed).map((check) => check.name);
  assert.deepEqual(
    solved.checks.filter((check) => !check.passed),
    [],
    `${place}: failed after the solution`,
  );
  assert.equal(solved.outcome, 'passed', place);
  assert.equal(nop.outcome, 'failed', place);
  assert.deepEqual(
    names(nop),
    task.instance.checks.filter((check) => check.guard).map((check) => check.name),
    `${place}: only guards may pass when nothing was done`,
  );
}
