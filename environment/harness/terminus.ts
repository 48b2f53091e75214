/**
 * The harness `terminus`: Terminus-2's way of working. The agent types keystrokes into a terminal and reads what is new on it; a reply
 * holds several, each with the seconds to wait after it. That the task is complete has to be said twice in a row, because it ends the
 * episode. A reply that cannot be read is answered with what is wrong with it, and nothing of it is typed.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { SandboxDiedError, TaskError } from '../errors.ts';
import type { Terminal, TurnRecord } from '../types.ts';
import type { Deed, HarnessSession, SessionOptions } from './session.ts';
import { TerminalReader } from './terminal-output.ts';
import { parseTerminusReply } from './terminus-protocol.ts';
import type { TerminusCommand } from './terminus-protocol.ts';

/** Longer than this no reply waits; whoever waits for more looks again. */
const LONGEST_WAIT_SEC = 60;
const CONFIRM =
  'You said that the task is complete. It will be graded as it is now, and you cannot correct anything afterwards. ' +
  'If you are sure, say "task_complete": true once more; else go on working.';

export function openTerminusHarness({ sandbox, task, clock, signal }: SessionOptions): HarnessSession {
  let terminal: Terminal;
  let reader: TerminalReader;
  let asked = false;
  return {
    close: () => Promise.resolve(), // the terminal ends with the sandbox's processes
    async begin() {
      if (!sandbox.openTerminal) {
        throw new TaskError(`${task.id}: the ${sandbox.kind} sandbox has no terminal; the harness terminus needs the docker sandbox`, {
          type: 'UnsupportedHarnessError',
        });
      }
      const user = task.agentUser === undefined ? {} : { user: task.agentUser };
      terminal = await sandbox.openTerminal({ ...user, ...(signal ? { signal } : {}) });
      reader = new TerminalReader(terminal);
      return `${task.instruction.trimEnd()}\n\n${await reader.read(signal)}`;
    },
    async act(text): Promise<Deed> {
      const reply = parseTerminusReply(text);
      if (reply.error !== undefined) {
        const warnings = reply.warnings.length > 0 ? `\n${list('Also', reply.warnings)}` : '';
        const observation = `The previous response could not be read, and nothing of it was typed.\nERROR: ${reply.error}${warnings}\n\nPlease send one JSON object as described.`;
        return { turn: { commands: [] }, observation };
      }
      const typed: NonNullable<TurnRecord['keystrokes']>[number][] = [];
      const turn = (): Deed['turn'] => ({
        commands: [],
        ...(typed.length > 0 ? { keystrokes: typed } : {}),
        ...(reply.complete ? { taskComplete: true as const } : {}),
      });
      try {
        for (const command of reply.commands) {
          if (clock.leftSec <= 0) break;
          const durationSec = Math.min(Math.max(command.duration, 0), LONGEST_WAIT_SEC);
          typed.push({ keystrokes: command.keystrokes, durationSec });
          await type(command, durationSec);
        }
        if (!(await terminal.alive(signal))) return { turn: turn(), observation: '', done: 'terminal-ended' };
        const output = await reader.read(signal);
        if (reply.complete && asked) return { turn: turn(), observation: output, done: 'exit' };
        asked = reply.complete;
        const warnings = reply.warnings.length > 0 ? `${list('Warnings about the previous response', reply.warnings)}\n\n` : '';
        return { turn: turn(), observation: `${warnings}${output}${asked ? `\n\n${CONFIRM}` : ''}` };
      } catch (error) {
        if (error instanceof SandboxDiedError) return { turn: turn(), observation: '', died: error };
        signal?.throwIfAborted();
        // Typing into a terminal that ended fails; that is what the agent did, and no fault of the machine.
        if (await terminal.alive(signal).catch(() => true)) throw error;
        return { turn: turn(), observation: '', done: 'terminal-ended' };
      }
    },
  };

  /** Types, then waits; what the typing itself took is part of the wait. */
  async function type(command: TerminusCommand, durationSec: number): Promise<void> {
    const began = performance.now();
    if (command.keystrokes !== '') await terminal.send(command.keystrokes, signal);
    const waitSec = Math.min(durationSec, clock.leftSec);
    const leftMs = waitSec * 1000 - (performance.now() - began);
    if (leftMs > 0) await sleep(leftMs, undefined, signal && { signal });
    clock.spend(durationSec);
  }
}

function list(title: string, lines: readonly string[]): string {
  return `${title}:\n${lines.map((line) => `- ${line}`).join('\n')}`;
}
