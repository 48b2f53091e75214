/** What a harness makes of an agent's replies in one sandbox: shell.ts (`shell`, `script`), terminus.ts. */
import type { SandboxDiedError } from '../errors.ts';
import type { HarnessName, Sandbox, Task, TurnRecord } from '../types.ts';
import type { EpisodeLimits } from './agent.ts';
import type { AgentClock } from './clock.ts';

export interface SessionOptions {
  readonly sandbox: Sandbox;
  /** Of a task of several steps, the step's (tasks/task.ts, `stepTask`). */
  readonly task: Task;
  readonly harness: HarnessName;
  readonly limits: EpisodeLimits;
  readonly clock: AgentClock;
  readonly signal?: AbortSignal;
}

export interface HarnessSession {
  /** The text that the agent reads first. */
  begin(): Promise<string>;
  /** Executes a reply. Throws InfrastructureError, TaskError, or the signal's reason. */
  act(reply: string): Promise<Deed>;
  /** Ends what the session started. Never throws. */
  close(): Promise<void>;
}

/** What a reply did. */
export interface Deed {
  readonly turn: Pick<TurnRecord, 'commands' | 'keystrokes' | 'taskComplete'>;
  /** What the agent reads next. */
  readonly observation: string;
  readonly done?: 'exit' | 'terminal-ended';
  /** The sandbox died while the reply was executed. */
  readonly died?: SandboxDiedError;
}
