/**
 * Verification in a sandbox the agent never touched: the task's initial environment with the workdir's content replaced by the
 * episode's snapshot and with its artifacts, then the tests. What the agent planted elsewhere, or left running, is not there.
 *
 * A verifier with an environment of its own gets the declared artifacts alone, as in Harbor: the agent's workdir is no part of it.
 */
import { quote } from '../tasks/dockerfile.ts';
import { located } from '../tasks/workdir.ts';
import type { FileTree, Sandbox, SandboxLabels, SandboxProvider, Task, WorkspaceSnapshot } from '../types.ts';
import { placeArtifacts } from './artifacts.ts';
import type { RewardReading } from './rewards.ts';
import { snapshotTree } from './snapshot.ts';
import { judgeTests, must } from './test-run.ts';
import type { Judged } from './test-run.ts';

export interface VerifySeparateOptions {
  /** A step of a task of several as a task (`stepTask`). */
  readonly task: Task;
  readonly snapshot: WorkspaceSnapshot;
  /** As `takeArtifacts` gives them. */
  readonly artifacts?: FileTree;
  readonly provider: SandboxProvider;
  readonly labels: SandboxLabels;
  readonly reading?: RewardReading;
  readonly signal?: AbortSignal;
}

/** @throws InfrastructureError when the sandbox fails (retry in a fresh one), TaskError when it cannot run the task */
export async function verifySeparate(options: VerifySeparateOptions): Promise<Judged> {
  const { snapshot, artifacts, provider, labels, signal, ...rest } = options;
  const task = await located(provider, verifierTask(options.task), signal);
  const sandbox = await provider.start(task, labels, signal);
  try {
    if (task.verifierEnvironment === undefined) await restoreWorkdir(sandbox, task, snapshot, signal);
    if (artifacts !== undefined) await placeArtifacts(sandbox, await located(provider, options.task, signal), artifacts);
    return await judgeTests({ ...rest, task, sandbox, shared: false, ...(signal ? { signal } : {}) });
  } finally {
    await sandbox.close();
  }
}

/** The task with the environment, workdir and network that its verifier has. */
function verifierTask(task: Task): Task {
  const { verifierEnvironment, verifierWorkdir: workdir = task.workdir, verifierNetwork } = task;
  if (verifierEnvironment === undefined && verifierNetwork === undefined) return task;
  const environment = verifierEnvironment ?? task.environment;
  return { ...task, workdir, environment: verifierNetwork === undefined ? environment : { ...environment, network: verifierNetwork } };
}

async function restoreWorkdir(sandbox: Sandbox, task: Task, snapshot: WorkspaceSnapshot, signal?: AbortSignal): Promise<void> {
  const failure = { type: 'InfrastructureError', action: `${task.id}: the verifier's sandbox could not be prepared`, cwd: task.workdir };
  await must(sandbox, 'rm -rf ./* ./.[!.]* ./..?*', failure, signal);
  await sandbox.upload(snapshotTree(snapshot), task.workdir);
  const directories = (snapshot.emptyDirectories ?? []).map(quote).join(' ');
  if (directories !== '') await must(sandbox, `mkdir -p ${directories}`, failure, signal);
}
