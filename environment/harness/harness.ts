/**
 * The agent harnesses: the loop between an agent that writes replies and a sandbox that runs them.
 *
 *   shell    a reply is one command (it may span lines); the reply `exit` ends the episode
 *   script   a reply is several commands, one a line, run in order; the line `exit` ends the episode
 *
 * Each command runs in a fresh shell in the task's workdir. Token-in, token-out: see token-record.ts. The agent may be a
 * policy (`runEpisode`), a list of commands (`runCommands`) or the task's reference solution (`runOracle`).
 */
import { observationText } from './observation.ts';
import { takeSnapshot } from '../verifier/snapshot.ts';
import { TokenRecord } from './token-record.ts';
import type {
  CommandRecord,
  EpisodeCodec,
  EpisodeRecord,
  EpisodeTokens,
  HarnessName,
  Sampler,
  Sandbox,
  SandboxLabels,
  SandboxProvider,
  StopReason,
  Task,
  TurnRecord,
  WorkspaceSnapshot,
} from '../types.ts';

/** The part of a run's `rollout` configuration that bounds an episode. */
export interface EpisodeLimits {
  readonly maxTurns: number;
  readonly maxTokensPerTurn: number;
  readonly observationTokens: number;
  readonly commandTimeoutSec: number;
}

interface EpisodeBase {
  readonly episodeId: string;
  readonly suite: string;
  readonly task: Task;
  readonly harness: HarnessName;
  readonly sample: number;
  readonly seed: number;
  readonly provider: SandboxProvider;
  readonly runKey: string;
  readonly limits: EpisodeLimits;
  /** The policy's context in tokens. */
  readonly contextLength: number;
  readonly purpose?: SandboxLabels['purpose'];
  /** Shown to the agent in the prompt (guided re-runs); never part of training examples. */
  readonly runbook?: string;
  readonly signal?: AbortSignal;
}
export interface EpisodeOptions extends EpisodeBase {
  readonly sampler: Sampler;
  /** SHA-256 of the policy artifact. */
  readonly policy: string;
  readonly codec: EpisodeCodec;
  readonly temperature: number;
  /** Seed of a turn's uniforms (unsigned 32 bit). */
  readonly turnSeed: (turn: number) => number;
}
export interface CommandsOptions extends EpisodeBase {
  readonly agent: 'oracle' | 'nop' | 'replay';
  /** Run in order, one a turn (`shell`) or all in one reply (`script`); the final `exit` is added. */
  readonly commands: readonly string[];
  /** Without one no tokens are recorded and no context limit applies. */
  readonly codec?: EpisodeCodec;
}
export interface EpisodeResult {
  readonly record: EpisodeRecord;
  readonly tokens: EpisodeTokens;
  readonly snapshot: WorkspaceSnapshot;
}

/** One reply. `complete` is false when it ended without end-of-turn; it is then not executed. */
interface Reply {
  readonly text: string;
  readonly tokens: readonly number[];
  readonly logprobs: readonly number[];
  readonly stop?: 'output-length' | 'context';
}
type Agent = (turn: number, tokens: readonly number[]) => Promise<Reply>;

/**
 * Rolls out one episode of a policy in a fresh sandbox.
 * @throws InfrastructureError (sandbox, sampler), TaskError, the signal's reason, or Error when the sampler breaks its contract
 */
export async function runEpisode(options: EpisodeOptions): Promise<EpisodeResult> {
  const { sampler, codec, policy, limits, contextLength, temperature, episodeId: sessionId } = options;
  const agent: Agent = async (turn, tokens) => {
    const room = contextLength - tokens.length;
    const maxTokens = Math.min(limits.maxTokensPerTurn, room);
    const result = await sampler.sample(
      { sessionId, policy, tokens: [...tokens], seed: options.turnSeed(turn), maxTokens, temperature },
      options.signal,
    );
    checkSample(result.tokens, result.stopReason === 'end-of-turn', maxTokens, codec.endOfTurn, turn);
    const full = result.stopReason === 'context' || (result.stopReason === 'max-tokens' && maxTokens === room);
    return {
      text: codec.decode(result.tokens),
      tokens: result.tokens,
      logprobs: result.logprobs,
      ...(result.stopReason === 'end-of-turn' ? {} : { stop: full ? ('context' as const) : ('output-length' as const) }),
    };
  };
  try {
    return await run(options, `policy:${policy}`, agent, codec);
  } finally {
    await sampler.endSession(sessionId);
  }
}

/** Replays commands in a fresh sandbox as the target harness would run them, and records the same tokens (log-probabilities 0). */
export async function runCommands(options: CommandsOptions): Promise<EpisodeResult> {
  const { codec, harness } = options;
  const replies = harness === 'shell' ? [...options.commands, 'exit'] : [[...options.commands, 'exit'].join('\n')];
  if (harness === 'script' && options.commands.some((command) => command.includes('\n'))) {
    throw new Error('a command of several lines cannot be replayed in the script harness, which runs one command a line');
  }
  const agent: Agent = (turn) => {
    const text = replies[turn] ?? 'exit';
    const tokens = codec ? codec.reply(text) : [];
    return Promise.resolve({ text, tokens, logprobs: tokens.map(() => 0) });
  };
  return await run(options, options.agent, agent, codec);
}

/** Runs the task's reference solution: /solution/solve.sh in a fresh sandbox. The task must have one. */
export async function runOracle(
  options: Omit<EpisodeBase, 'harness' | 'sample' | 'seed' | 'limits' | 'contextLength' | 'runbook'>,
): Promise<Omit<EpisodeResult, 'tokens'>> {
  const { task, provider, episodeId } = options;
  if (!task.solution) throw new Error(`${task.id} has no solution/`);
  const sandbox = await provider.start(task, labels(options, 'check'), options.signal);
  try {
    await sandbox.upload(task.solution, '/solution');
    const command = 'bash /solution/solve.sh';
    const { seconds: _, ...result } = await sandbox.exec(command, {
      timeoutSec: task.agentTimeoutSec,
      env: task.solutionEnv,
      ...(options.signal ? { signal: options.signal } : {}),
    });
    const turns = [{ reply: command, commands: [{ command, ...result }] }];
    const base = { ...options, harness: 'shell' as const, sample: 0, seed: 0 };
    return {
      record: episodeRecord(base, 'oracle', turns, result.timedOut ? 'agent-timeout' : 'exit', 0, 0),
      snapshot: await takeSnapshot(sandbox, task, episodeId, options.signal),
    };
  } finally {
    await sandbox.close();
  }
}

async function run(options: EpisodeBase, agentName: string, agent: Agent, codec: EpisodeCodec | undefined): Promise<EpisodeResult> {
  const { task, provider, harness, limits, episodeId } = options;
  const tokens = new TokenRecord();
  if (codec) tokens.appendContext(codec.prompt(harness, task.instruction, options.runbook));
  const turns: TurnRecord[] = [];
  const sandbox = await provider.start(task, labels(options, 'rollout'), options.signal);
  const clock: AgentClock = { leftSec: task.agentTimeoutSec };
  try {
    const stopReason = await converse();
    const snapshot = await takeSnapshot(sandbox, task, episodeId, options.signal);
    return {
      record: episodeRecord(options, agentName, turns, stopReason, tokens.agentTokens, tokens.length),
      tokens: tokens.finish(episodeId),
      snapshot,
    };
  } finally {
    await sandbox.close();
  }

  async function converse(): Promise<StopReason> {
    for (let turn = 0; ; turn++) {
      if (codec && tokens.length >= options.contextLength) return 'context';
      const reply = await agent(turn, tokens.tokens);
      options.signal?.throwIfAborted();
      tokens.appendAgent(turn, reply.tokens, reply.logprobs);
      if (reply.stop === undefined && codec && tokens.length > options.contextLength) return stopAt(reply, 'context');
      if (reply.stop !== undefined) return stopAt(reply, reply.stop);
      const { commands, exit } = parseReply(harness, reply.text);
      const records = await execute(sandbox, commands, limits, clock, options.signal);
      const done: StopReason | undefined =
        clock.leftSec <= 0 ? 'agent-timeout' : exit ? 'exit' : turn + 1 >= limits.maxTurns ? 'max-turns' : undefined;
      if (done !== undefined) {
        turns.push({ reply: reply.text, commands: records });
        return done;
      }
      const observation = observationText(records);
      if (codec) {
        const observed = codec.observation(observation, limits.observationTokens);
        // Without room for the observation and one more token there is no next turn.
        if (tokens.length + observed.length >= options.contextLength) {
          turns.push({ reply: reply.text, commands: records });
          return 'context';
        }
        tokens.appendContext(observed);
      }
      turns.push({ reply: reply.text, commands: records, observation });
    }
  }

  function stopAt(reply: Reply, reason: StopReason): StopReason {
    turns.push({ reply: reply.text, commands: [] });
    return reason;
  }
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

async function execute(
  sandbox: Sandbox,
  commands: readonly string[],
  limits: EpisodeLimits,
  clock: AgentClock,
  signal?: AbortSignal,
): Promise<CommandRecord[]> {
  const records: CommandRecord[] = [];
  for (const command of commands) {
    if (clock.leftSec <= 0) break;
    const timeoutSec = Math.min(limits.commandTimeoutSec, clock.leftSec);
    const { seconds, ...result } = await sandbox.exec(command, { timeoutSec, ...(signal ? { signal } : {}) });
    clock.leftSec -= seconds;
    records.push({ command, ...result });
  }
  return records;
}

function checkSample(tokens: readonly number[], ended: boolean, maxTokens: number, endOfTurn: number, turn: number): void {
  if (tokens.length === 0 || tokens.length > maxTokens)
    throw new Error(`turn ${turn}: the sampler returned ${tokens.length} tokens; expected 1 to ${maxTokens}`);
  const first = tokens.indexOf(endOfTurn);
  if (first !== (ended ? tokens.length - 1 : -1)) {
    throw new Error(
      `turn ${turn}: end-of-turn is at position ${first} of ${tokens.length} sampled tokens; expected ${ended ? 'it to be the last token' : 'none'}`,
    );
  }
}

function labels(options: Pick<EpisodeBase, 'runKey' | 'episodeId' | 'purpose'>, purpose: SandboxLabels['purpose']): SandboxLabels {
  return { runKey: options.runKey, episodeId: options.episodeId, purpose: options.purpose ?? purpose };
}

function episodeRecord(
  options: Pick<EpisodeBase, 'episodeId' | 'suite' | 'task' | 'harness' | 'provider' | 'sample' | 'seed'>,
  agent: string,
  turns: readonly TurnRecord[],
  stopReason: StopReason,
  agentTokens: number,
  totalTokens: number,
): EpisodeRecord {
  const { episodeId, suite, task, harness, provider, sample, seed } = options;
  const { id: taskId, checksum: taskChecksum, family, tier } = task;
  return {
    episodeId,
    suite,
    taskId,
    taskChecksum,
    family,
    tier,
    harness,
    sandbox: provider.kind,
    agent,
    sample,
    seed,
    turns,
    stopReason,
    agentTokens,
    totalTokens,
  };
}

/**
 * The agent's time over the whole episode (the task's `[agent] timeout_sec`). Only its commands in the sandbox use it up, by the
 * sandbox's own clock. What it waits for the sampler is not the agent's doing but the machine's load: counted, it would
 * make an outcome that is trained on depend on the episodes beside it. Waiting is bounded where it happens (policy/trainer/client.ts).
 */
interface AgentClock {
  leftSec: number;
}
