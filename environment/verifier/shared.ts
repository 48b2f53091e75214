/**
 * Verification in the agent's own sandbox, Harbor's default: nothing of the agent runs any more, and what it planted has no effect as
 * far as that can be had where it may have been root (docs/verification.md says where that ends; separate.ts has no such end).
 */
import type { Sandbox, Task } from '../types.ts';
import { runCollectHooks } from './artifacts.ts';
import { kitFolder } from './kit.ts';
import { judgeTests } from './test-run.ts';
import type { Judged } from './test-run.ts';
import type { RewardReading } from './rewards.ts';

export interface VerifySharedOptions {
  /** A step of a task of several as a task (`stepTask`). */
  readonly task: Task;
  /** The agent's. */
  readonly sandbox: Sandbox;
  readonly reading?: RewardReading;
  /** Leaves the agent's processes alive, for tasks that are judged by a running service. The verdict can then be forged. */
  readonly keepProcesses?: boolean;
  readonly signal?: AbortSignal;
}

/**
 * @throws InfrastructureError when the sandbox fails (`type` as in Harbor) or the agent's processes cannot be proven dead
 */
export async function verifyShared(options: VerifySharedOptions): Promise<Judged> {
  const { task, sandbox, signal } = options;
  await runCollectHooks(sandbox, task, signal);
  if (options.keepProcesses !== true) await sandbox.killAll(signal);
  // The agent's own network, if it had one, ends with it.
  const network = task.verifierNetwork ?? (task.agentNetwork === undefined ? undefined : task.environment.network);
  if (network !== undefined) await sandbox.setNetwork(network);
  const judged = await judgeTests({ ...options, shared: true });
  // A next step's agent finds neither. What cannot be removed is overwritten by its verification.
  await sandbox.exec(`rm -rf /tests ${kitFolder}`, { timeoutSec: 60, cwd: '/', user: 'root', ...(signal ? { signal } : {}) });
  return judged;
}
