/**
 * Whose doing the failure of a sandbox is. What ran in it may have killed it (`kill -9 -1` as root, all memory eaten), or the machine
 * did; from inside they look alike. So a control decides: right after it, a fresh sandbox of the same task has to start and run a command. A
 * failure that a control cannot tell from an outage is never held against the agent.
 */
import { EngineLostError, InfrastructureError, SandboxDiedError } from './errors.ts';
import type { SandboxLabels, SandboxProvider, Task } from './types.ts';

const CONTROL_SECONDS = 60;

export interface ControlOptions {
  readonly task: Task;
  readonly provider: SandboxProvider;
  /** Of the sandbox that failed; the control's own are made from them. */
  readonly labels: SandboxLabels;
  readonly signal?: AbortSignal;
}

/**
 * Whether `error` means that what ran in a sandbox has killed it: it died, out of memory or otherwise, and a fresh one works.
 * @returns false for any error but the death of a sandbox
 * @throws InfrastructureError where a fresh one does not work either: the machine is at fault. Or the signal's reason.
 */
export async function diedByAgent(error: unknown, options: ControlOptions): Promise<boolean> {
  if (!(error instanceof SandboxDiedError)) return false;
  await requireWorkingSandbox(options, error);
  return true;
}

/** @throws InfrastructureError unless a fresh sandbox of the task starts and runs a command; `failure` itself where the engine was lost */
export async function requireWorkingSandbox(
  { task, provider, labels, signal }: ControlOptions,
  failure: InfrastructureError,
): Promise<void> {
  // The engine took the sandbox with it. That another one starts once it is back says nothing about the first.
  if (failure instanceof EngineLostError) throw failure;
  const controlLabels: SandboxLabels = { ...labels, episodeId: `${labels.episodeId}/control`, purpose: 'check' };
  const sandbox = await provider.start(task, controlLabels, signal);
  try {
    const { exitCode } = await sandbox.exec('true', { timeoutSec: CONTROL_SECONDS, ...(signal ? { signal } : {}) });
    if (exitCode !== 0)
      throw new InfrastructureError(`sandboxes of ${task.id} run no commands (exit code ${exitCode}); before that: ${failure.message}`);
  } finally {
    await sandbox.close();
  }
}
