/** The oracle: the task's reference solution, run as one command instead of a conversation. No other agent ever sees /solution. */
import { SandboxDiedError } from '../errors.ts';
import type { Sandbox, Task } from '../types.ts';
import type { Interaction } from './interact.ts';

/** What runs a solution, as the record shows it. */
const COMMAND = 'bash /solution/solve.sh';

export interface SolutionOptions {
  readonly sandbox: Sandbox;
  /** Of a task of several steps, the step's. It must have a solution. */
  readonly task: Task;
  /** Variables of solve.sh: the task's `solutionEnv` with its templates resolved. */
  readonly env: Readonly<Record<string, string>>;
  readonly diedByAgent?: (error: SandboxDiedError) => Promise<boolean>;
  readonly signal?: AbortSignal;
}

/** Runs the solution in a sandbox that has been started. @throws InfrastructureError, or the signal's reason */
export async function runSolution({ sandbox, task, env, diedByAgent, signal }: SolutionOptions): Promise<Interaction> {
  if (!task.solution) throw new Error(`${task.id} has no solution/`);
  await sandbox.upload(task.solution, '/solution');
  try {
    const { seconds: _, ...result } = await sandbox.exec(COMMAND, {
      timeoutSec: task.agentTimeoutSec,
      env,
      ...(task.agentUser === undefined ? {} : { user: task.agentUser }),
      ...(signal ? { signal } : {}),
    });
    const turns = [{ reply: COMMAND, commands: [{ command: COMMAND, ...result }] }];
    return { turns, stopReason: result.timedOut ? 'agent-timeout' : 'exit' };
  } catch (error) {
    if (!(error instanceof SandboxDiedError) || !(await diedByAgent?.(error))) throw error;
    return { turns: [{ reply: COMMAND, commands: [] }], stopReason: 'sandbox-died' };
  }
}
