/**
 * Replies to replay, from a stored trajectory: an EpisodeRecord (a line of JSON) or an ATIF document (JSON), ours or another agent's. Of other
 * agents the tool calls count: Terminus-2's `bash_command` for keystrokes, and any call with a `command` for a command of a shell.
 */
import { readFile } from 'node:fs/promises';
import { z } from 'zod';
import { UserError } from '../environment/errors.ts';
import { commandsIn } from '../environment/harness/chat-reply.ts';
import { commandReplies } from '../environment/harness/scripted-agent.ts';
import { parseReply } from '../environment/harness/shell.ts';
import type { EpisodeRecord, HarnessName } from '../environment/types.ts';

/** What an agent did, as far as it can be done again. */
interface Stored {
  readonly harness: HarnessName;
  readonly replies: readonly string[];
  /** undefined for keystrokes. */
  readonly commands: readonly string[] | undefined;
}

/**
 * The replies of a stored episode, for `harness`. Replies of the same harness are said word for word, but for what a chat model wrote around
 * its commands; commands of `shell` and `script` can be run in the other one. Keystrokes can be replayed at a terminal only.
 * @param file its path; of several episodes (JSON lines) `taskId` chooses
 * @throws UserError naming the file and what was expected
 */
export async function replayReplies(file: string, harness: HarnessName, taskId?: string): Promise<readonly string[]> {
  const text = await readFile(file, 'utf8').catch((error: unknown) => {
    throw new UserError(`${file}: ${(error as Error).message}; expected a stored trajectory`);
  });
  const stored = readStored(text, file, taskId);
  if (stored.harness === harness) return stored.replies;
  if (harness === 'terminus' || stored.commands === undefined) {
    throw new UserError(
      `${file}: recorded with the harness ${stored.harness}; it cannot be replayed with ${harness}, expected ${stored.harness}`,
    );
  }
  try {
    return commandReplies(harness, stored.commands);
  } catch (error) {
    throw new UserError(`${file}: ${(error as Error).message}`);
  }
}

function readStored(text: string, file: string, taskId: string | undefined): Stored {
  let values: unknown[];
  try {
    values = [JSON.parse(text)];
  } catch {
    values = text
      .split('\n')
      .filter((line) => line.trim() !== '')
      .map((line, index) => {
        try {
          return JSON.parse(line) as unknown;
        } catch (error) {
          throw new UserError(`${file}:${index + 1}: ${(error as Error).message}; expected an episode record or an ATIF trajectory`);
        }
      });
  }
  const [value] = values;
  if (typeof value === 'object' && value !== null && 'schema_version' in value) return readAtif(value, file);
  const episodes = values.filter(isEpisode).filter((episode) => taskId === undefined || values.length === 1 || episode.taskId === taskId);
  const [episode] = episodes;
  if (!episode)
    throw new UserError(
      `${file}: no episode${taskId === undefined ? '' : ` of task ${taskId}`} in it; expected an episode record or an ATIF trajectory`,
    );
  const { turns } = episode;
  return {
    harness: episode.harness,
    replies: turns.map(({ reply, commands }) =>
      withoutWrapping(
        episode.harness,
        reply,
        commands.map(({ command }) => command),
      ),
    ),
    commands: episode.harness === 'terminus' ? undefined : turns.flatMap(({ commands }) => commands.map(({ command }) => command)),
  };
}

function isEpisode(value: unknown): value is EpisodeRecord {
  return typeof value === 'object' && value !== null && 'turns' in value && 'harness' in value && Array.isArray(value.turns);
}

/** What we need of any version of ATIF. */
const atif = z.object({
  agent: z.object({ extra: z.record(z.string(), z.unknown()).nullish() }),
  steps: z.array(
    z.object({
      source: z.string(),
      message: z.unknown(),
      is_copied_context: z.boolean().nullish(),
      tool_calls: z.array(z.object({ function_name: z.string(), arguments: z.record(z.string(), z.unknown()) })).nullish(),
      extra: z.record(z.string(), z.unknown()).nullish(),
    }),
  ),
});
type AtifStep = z.infer<typeof atif>['steps'][number];
const harnessName = z.enum(['shell', 'script', 'terminus'] satisfies HarnessName[]);

function readAtif(value: object, file: string): Stored {
  const { data, error } = atif.safeParse(value);
  if (!data) throw new UserError(`${file}: ${z.prettifyError(error)}; expected an ATIF trajectory`);
  const steps = data.steps.filter(({ source, is_copied_context: copied }) => source === 'agent' && copied !== true);
  const calls = steps.flatMap((step) => step.tool_calls ?? []);
  const typed = calls.some(({ function_name: name }) => name === 'bash_command');
  const commands = typed ? undefined : steps.flatMap(commandsOf);
  const ours = harnessName.safeParse(data.agent.extra?.harness);
  if (ours.success)
    return {
      harness: ours.data,
      replies: steps.map((step) => withoutWrapping(ours.data, saidBy(step), commandsOf(step))),
      commands: ours.data === 'terminus' ? undefined : (commands ?? []),
    };
  if (typed)
    return { harness: 'terminus', replies: steps.filter((step) => (step.tool_calls ?? []).length > 0).map(keystrokesOf), commands };
  if (commands === undefined || commands.length === 0)
    throw new UserError(
      `${file}: no tool call with a command or with keystrokes in its ${steps.length} agent steps; expected something to replay`,
    );
  return { harness: 'shell', replies: commandReplies('shell', commands), commands };
}

/** Our own steps hold the reply word for word: as message, or beside it where the message is what it says to a person. */
function saidBy({ message, extra }: AtifStep): string {
  const said = extra?.reply ?? message;
  return typeof said === 'string' ? said : '';
}

function commandsOf({ tool_calls: calls }: AtifStep): string[] {
  return (calls ?? []).map((call) => call.arguments.command).filter((command) => typeof command === 'string');
}

/** The reply, or what of it was executed where that was not all of it. */
function withoutWrapping(harness: HarnessName, reply: string, executed: readonly string[]): string {
  if (harness === 'terminus') return reply;
  const { commands } = parseReply(harness, reply);
  const isWhole = executed.length === 0 ? commands.length === 0 : executed.every((command, index) => command === commands[index]);
  return isWhole ? reply : commandsIn(harness, reply);
}

function keystrokesOf({ tool_calls: calls }: AtifStep): string {
  const named = (name: string): Readonly<Record<string, unknown>>[] =>
    (calls ?? []).filter((call) => call.function_name === name).map((call) => call.arguments);
  return JSON.stringify({ analysis: '', plan: '', commands: named('bash_command'), task_complete: named('mark_task_complete').length > 0 });
}
