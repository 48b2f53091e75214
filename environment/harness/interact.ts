/**
 * The loop between an agent that writes replies and a sandbox that runs them. It works on a sandbox that has been started, so that a task
 * of several steps calls it once a step; it neither verifies nor closes anything but its own shell or terminal.
 */
import type { SandboxDiedError } from '../errors.ts';
import type { StopReason, TurnRecord } from '../types.ts';
import type { Conversation, Reply } from './agent.ts';
import type { HarnessSession, SessionOptions } from './session.ts';
import { openShellHarness } from './shell.ts';
import { openTerminusHarness } from './terminus.ts';

/** Longer than this Node's timers do not wait. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

export interface InteractOptions extends SessionOptions {
  /** Open; a second step may go on with the first one's. The caller closes it. */
  readonly conversation: Conversation;
  /** Turns that the conversation had before. Default 0. */
  readonly firstTurn?: number;
  /** Filled while the turns are played: what was done before an error is known to the caller. */
  readonly turns?: TurnRecord[];
  /** Whether the agent killed the sandbox (control.ts); else the error is thrown. Default: it is thrown. */
  readonly diedByAgent?: (error: SandboxDiedError) => Promise<boolean>;
}
export interface Interaction {
  readonly turns: readonly TurnRecord[];
  readonly stopReason: StopReason;
}

/**
 * Plays one instruction to its end. `limits.maxTurns` counts this instruction's turns.
 * @throws InfrastructureError (sandbox, agent), TaskError, UserError, or the signal's reason
 */
export async function interact(options: InteractOptions): Promise<Interaction> {
  const { conversation, limits, clock, signal, firstTurn = 0, turns = [] } = options;
  const ended = (stopReason: StopReason, last?: TurnRecord): Interaction => {
    if (last) turns.push(last);
    return { turns, stopReason };
  };
  const session = openHarness(options);
  try {
    if (!conversation.instruct(await session.begin())) return ended('context');
    for (;;) {
      const reply = await nextReply(options, firstTurn + turns.length);
      if (reply === undefined) return ended('agent-timeout');
      signal?.throwIfAborted();
      if (reply.stop !== undefined) return ended(reply.stop, { reply: reply.text, commands: [] });
      const { turn, observation, done, died } = await session.act(reply.action ?? reply.text);
      const record: TurnRecord = { reply: reply.text, ...turn };
      if (died) {
        if (!(await options.diedByAgent?.(died))) throw died;
        return ended('sandbox-died', record);
      }
      if (clock.leftSec <= 0) return ended('agent-timeout', record);
      if (done !== undefined) return ended(done, record);
      if (turns.length + 1 >= limits.maxTurns) return ended('max-turns', record);
      if (!conversation.observe(observation)) return ended('context', record);
      turns.push({ ...record, observation });
    }
  } finally {
    await session.close();
  }
}

function openHarness(options: SessionOptions): HarnessSession {
  return options.harness === 'terminus' ? openTerminusHarness(options) : openShellHarness(options);
}

/** undefined: the agent's time ended while it thought. */
async function nextReply({ conversation, clock, signal }: InteractOptions, turn: number): Promise<Reply | undefined> {
  if (!clock.wall || clock.leftSec === Infinity) return await conversation.reply(turn, signal);
  if (clock.leftSec <= 0) return undefined;
  const limit = AbortSignal.timeout(Math.min(Math.ceil(clock.leftSec * 1000), LONGEST_TIMER_MS));
  try {
    return await conversation.reply(turn, signal ? AbortSignal.any([signal, limit]) : limit);
  } catch (error) {
    signal?.throwIfAborted();
    if (limit.aborted) return undefined;
    throw error;
  }
}
