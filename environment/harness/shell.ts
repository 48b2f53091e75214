/**
 * The harnesses `shell` and `script`: a reply is one command (it may span lines), or several, one a line, run in order. `exit` ends the
 * episode. All commands of an episode run in one shell, so directory, variables and background jobs stay as in a terminal.
 */
import { SandboxDiedError } from '../errors.ts';
import type { CommandRecord, HarnessName, ShellSession } from '../types.ts';
import { observationText } from './observation.ts';
import type { Deed, HarnessSession, SessionOptions } from './session.ts';

/** What a shell reports of a command that was killed. */
const KILLED = 137;

export function openShellHarness({ sandbox, task, harness, limits, clock, signal }: SessionOptions): HarnessSession {
  // Opened by the first command: an agent that does nothing costs nothing.
  let shell: ShellSession | undefined;
  const user = task.agentUser === undefined ? {} : { user: task.agentUser };
  return {
    begin: () => Promise.resolve(task.instruction),
    close: async () => await shell?.close(),
    async act(reply): Promise<Deed> {
      const { commands, exit } = parseReply(harness, reply);
      const records: CommandRecord[] = [];
      for (const command of commands) {
        if (clock.leftSec <= 0) break;
        try {
          shell ??= await sandbox.openShell(user);
          const timeoutSec = Math.min(limits.commandTimeoutSec, clock.leftSec);
          const { seconds, ...result } = await shell.run(command, { timeoutSec, ...(signal ? { signal } : {}) });
          clock.spend(seconds);
          records.push({ command, ...result });
        } catch (error) {
          if (!(error instanceof SandboxDiedError)) throw error;
          records.push({ command, stdout: '', stderr: '', exitCode: KILLED, timedOut: false });
          return { turn: { commands: records }, observation: '', died: error };
        }
      }
      return { turn: { commands: records }, observation: observationText(records), ...(exit ? { done: 'exit' as const } : {}) };
    },
  };
}

/** The commands of a reply, and whether it ends the episode after them. */
export function parseReply(harness: HarnessName, reply: string): { commands: string[]; exit: boolean } {
  const text = reply.trim();
  if (harness === 'shell') return text === 'exit' ? { commands: [], exit: true } : { commands: [text], exit: false };
  const lines = text
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '');
  const end = lines.indexOf('exit');
  return end === -1 ? { commands: lines, exit: false } : { commands: lines.slice(0, end), exit: true };
}
