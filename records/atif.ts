/**
 * Trajectories in ATIF v1.8, the format that Harbor's tools read: one JSON document an episode, with the agent's turns as steps and its
 * commands as tool calls. Token ids and log-probabilities do not stand in it but in a file beside it (`tokenLines`), because they would repeat
 * the whole prompt with every turn; the document names that file and its hash. Equal episodes give equal bytes: no times are in it.
 */
import { createHash } from 'node:crypto';
import { createRequire } from 'node:module';
import { explainHarness } from '../environment/harness/prompts.ts';
import { observationText } from '../environment/harness/observation.ts';
import { parseTerminusReply } from '../environment/harness/terminus-protocol.ts';
import type { TokenUsage } from '../environment/trial/types.ts';
import type { EpisodeRecord, EpisodeTokens, TurnRecord } from '../environment/types.ts';
import { turnTokens } from './token-lines.ts';
import type { TurnTokens } from './token-lines.ts';

export const ATIF_VERSION = 'ATIF-v1.8';
export const TRAJECTORY_FILE = 'trajectory.json';
export const TOKENS_FILE = 'tokens.jsonl';

interface ToolCall {
  readonly tool_call_id: string;
  readonly function_name: string;
  readonly arguments: Readonly<Record<string, unknown>>;
}
interface ObservationResult {
  readonly source_call_id?: string;
  readonly content: string;
  readonly extra?: Readonly<Record<string, unknown>>;
}
interface Step {
  readonly step_id: number;
  readonly source: 'system' | 'user' | 'agent';
  readonly message: string;
  readonly tool_calls?: readonly ToolCall[];
  readonly observation?: { readonly results: readonly ObservationResult[] };
  readonly metrics?: { readonly prompt_tokens: number; readonly completion_tokens: number };
  readonly llm_call_count?: number;
  readonly extra?: Readonly<Record<string, unknown>>;
}
export interface Trajectory {
  readonly schema_version: typeof ATIF_VERSION;
  readonly session_id: string;
  readonly agent: {
    readonly name: string;
    readonly version: string;
    readonly model_name?: string;
    readonly extra: Readonly<Record<string, unknown>>;
  };
  readonly steps: readonly Step[];
  readonly final_metrics: Readonly<Record<string, unknown>>;
  readonly extra: Readonly<Record<string, unknown>>;
}

export interface AtifInput {
  readonly record: EpisodeRecord;
  /** What the agent was told to do. */
  readonly instruction: string;
  /** Of a trial of several steps, one step's turns: [first, after the last). Default: all. */
  readonly turns?: readonly [number, number];
  readonly tokens?: EpisodeTokens;
  readonly usage?: TokenUsage;
}
export interface Atif {
  readonly trajectory: Trajectory;
  /** Content of TOKENS_FILE, beside the trajectory; absent where no tokens are known. */
  readonly tokenLines?: string;
}

const { version } = createRequire(import.meta.url)('../package.json') as { version: string };

/** An agent's name and model, as Harbor keeps them apart. */
export function agentInfo({ agent }: Pick<EpisodeRecord, 'agent'>): {
  readonly name: string;
  readonly version: string;
  readonly model?: string;
} {
  // Enough of a policy's hash to tell it by in a table; the whole of it is in the trajectory.
  if (agent.startsWith('policy:')) return { name: 'terminal-rsi', version, model: agent.slice(0, 'policy:'.length + 12) };
  if (agent.startsWith('model:')) return { name: 'terminal-rsi', version, model: agent.slice('model:'.length) };
  return { name: agent, version };
}

/** @throws Error where the tokens do not fit the turns, or a turn has not as many log-probabilities as tokens */
export function toAtif({ record, instruction, turns: range, tokens, usage }: AtifInput): Atif {
  const [first, end] = range ?? [0, record.turns.length];
  const turns = record.turns.slice(first, end);
  const lines = tokens && tokens.tokens.length > 0 ? tokensOfTurns(record, tokens).slice(first, end) : [];
  const known = lines.length > 0 ? lines : undefined;
  const tokenLines = known?.map((line) => `${JSON.stringify(line)}\n`).join('');
  const { name, model } = agentInfo(record);
  const thinks = model !== undefined;
  const steps: Step[] = [];
  const add = (step: Omit<Step, 'step_id'>): void => void steps.push({ step_id: steps.length + 1, ...step });
  if (record.agent.startsWith('model:')) add({ source: 'system', message: explainHarness(record.harness) });
  add({ source: 'user', message: instruction });
  turns.forEach((turn, index) => add(agentStep(record, turn, first + index, thinks, known?.[index])));
  const sum = (count: (line: TurnTokens) => number): number => (known ?? []).reduce((total, line) => total + count(line), 0);
  const totals =
    thinks && known
      ? {
          promptTokens: sum((line) => line.prompt_tokens),
          completionTokens: sum((line) => line.completion_token_ids.length),
          cachedTokens: undefined,
        }
      : range
        ? undefined // an endpoint counts over all steps
        : usage;
  return {
    trajectory: {
      schema_version: ATIF_VERSION,
      session_id: record.episodeId,
      agent: {
        ...{ name, version, ...(model === undefined ? {} : { model_name: model }) },
        extra: { id: record.agent, harness: record.harness, sandbox: record.sandbox, sample: record.sample, seed: record.seed },
      },
      steps,
      final_metrics: {
        ...(totals ? { total_prompt_tokens: totals.promptTokens, total_completion_tokens: totals.completionTokens } : {}),
        ...(totals?.cachedTokens === undefined ? {} : { total_cached_tokens: totals.cachedTokens }),
        total_steps: steps.length,
      },
      extra: {
        ...{ suite: record.suite, task_id: record.taskId, task_checksum: record.taskChecksum, stop_reason: record.stopReason },
        ...(tokenLines === undefined
          ? {}
          : { tokens: { file: TOKENS_FILE, sha256: createHash('sha256').update(tokenLines).digest('hex') } }),
      },
    },
    ...(tokenLines === undefined ? {} : { tokenLines }),
  };
}

function tokensOfTurns({ turns, stopReason }: EpisodeRecord, tokens: EpisodeTokens): TurnTokens[] {
  const lines = turnTokens(tokens);
  // A reply whose execution failed with the environment has tokens, and no turn.
  const fits = stopReason === 'error' ? lines.length >= turns.length : lines.length === turns.length;
  if (!fits) throw new Error(`tokens of episode ${tokens.episodeId}: of ${lines.length} turns; the episode has ${turns.length}`);
  return lines.slice(0, turns.length);
}

function agentStep(
  { harness }: EpisodeRecord,
  turn: TurnRecord,
  number: number,
  thinks: boolean,
  tokens: TurnTokens | undefined,
): Omit<Step, 'step_id'> {
  const { message, calls, results, extra } = harness === 'terminus' ? terminusTurn(turn, number) : shellTurn(turn, number);
  return {
    ...{ source: 'agent' as const, message },
    ...(calls.length > 0 ? { tool_calls: calls } : {}),
    ...(results.length > 0 ? { observation: { results } } : {}),
    ...(thinks && tokens
      ? { metrics: { prompt_tokens: tokens.prompt_tokens, completion_tokens: tokens.completion_token_ids.length } }
      : {}),
    llm_call_count: thinks ? 1 : 0,
    ...(extra ? { extra } : {}),
  };
}

interface Shown {
  readonly message: string;
  readonly calls: readonly ToolCall[];
  readonly results: readonly ObservationResult[];
  readonly extra?: Readonly<Record<string, unknown>>;
}

function shellTurn({ reply, commands, observation }: TurnRecord, number: number): Shown {
  const id = (index: number): string => `call_${number}_${index + 1}`;
  return {
    message: reply,
    calls: commands.map(({ command }, index) => ({ tool_call_id: id(index), function_name: 'bash', arguments: { command } })),
    results:
      commands.length === 0 && observation !== undefined
        ? [{ content: observation }]
        : commands.map((command, index) => ({
            source_call_id: id(index),
            content: observationText([command]),
            extra: {
              exit_code: command.exitCode,
              ...(command.timedOut ? { timed_out: true } : {}),
              ...(command.oomKills === undefined ? {} : { oom_kills: command.oomKills }),
            },
          })),
  };
}

/** As Harbor shows Terminus-2: the thoughts as message, the keystrokes as calls that share one observation. The reply itself is in `extra`. */
function terminusTurn({ reply, keystrokes = [], taskComplete, observation }: TurnRecord, number: number): Shown {
  const { analysis, plan, error } = parseTerminusReply(reply);
  const thoughts = [analysis && `Analysis: ${analysis}`, plan && `Plan: ${plan}`].filter((part) => part !== '').join('\n');
  const calls = keystrokes.map((typed, index) => ({
    tool_call_id: `call_${number}_${index + 1}`,
    function_name: 'bash_command',
    arguments: { keystrokes: typed.keystrokes, duration: typed.durationSec },
  }));
  const done = { tool_call_id: `call_${number}_task_complete`, function_name: 'mark_task_complete', arguments: {} };
  const [only, ...more] = calls;
  return {
    message: error === undefined ? thoughts : reply,
    calls: taskComplete ? [...calls, done] : calls,
    results:
      observation === undefined
        ? []
        : [{ ...(only && more.length === 0 ? { source_call_id: only.tool_call_id } : {}), content: observation }],
    extra: { reply },
  };
}
