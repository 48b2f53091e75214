/**
 * RSR's rewriting loop for one task (docs/method.md, RSR 3 to 5), without a language model:
 *
 *   verified successes → distinct command lists → minimise (each candidate executed and verified in a fresh environment) → put evidence back
 *   → runbook → screens, shortest first → replay in the target harness in a fresh environment, verify → examples
 *
 * Nothing is trained on that did not pass that last verification, and an example never holds the runbook: its tokens are those of an
 * ordinary episode of the target harness. Every execution counts, and a list executed once for the task is not executed again.
 */
import { keepEvidence } from '../method/evidence.ts';
import { minimizeCommands } from '../method/minimize.ts';
import { buildRunbook, runbookCommands } from '../method/runbook.ts';
import type { ObservedCommand, Runbook } from '../method/runbook.ts';
import { screenContaminated, screenDuplicate, screenIrrelevant, screenLeak, screenTamper } from '../method/screens.ts';
import type { ContaminationIndex, ScreenFinding } from '../method/screens.ts';
import type { RewriteCounts } from '../method/rewrite-counts.ts';
import { runCommands } from './harness/harness.ts';
import type { CommandsOptions, EpisodeLimits, EpisodeResult } from './harness/harness.ts';
import type { EpisodeCodec, EpisodeRecord, EpisodeTokens, SandboxLabels, SandboxProvider, Task, Verdict } from './types.ts';
import { verify } from './verifier/verifier.ts';

export interface RewriteOptions {
  readonly suite: string;
  readonly task: Task;
  /** Episodes of this task that passed verification, from the target and the complementary harnesses. */
  readonly successes: readonly EpisodeRecord[];
  readonly provider: SandboxProvider;
  readonly codec: EpisodeCodec;
  readonly runKey: string;
  readonly workflow?: SandboxLabels['workflow'];
  readonly limits: EpisodeLimits;
  /** The policy's context in tokens; a longer example is dropped. */
  readonly contextLength: number;
  /** At most this many distinct runbooks, shortest first. */
  readonly keptPerTask: number;
  /** Bound on executions for minimising one success; ours. */
  readonly maxExecutions?: number;
  /** Evaluation tasks' n-grams; without them the screen `contaminated` is not applied. */
  readonly evaluationTexts?: ContaminationIndex;
  /** Called after every execution; the activity heartbeats with it. */
  readonly progress?: (executions: number) => void;
  readonly signal?: AbortSignal;
}

/** Why a runbook was not kept: a screen, or what happened on the way. */
export type DropRule =
  | ScreenFinding['rule']
  | 'repeated' // another success has the same commands
  | 'not-reproduced' // its commands do not pass in a fresh environment
  | 'empty' // the task passes without any command
  | 'limit' // keptPerTask shorter ones were kept
  | 'too-long' // does not fit the target harness's turns or context
  | 'failed-rerun'; // did not pass in the target harness
export type RunbookDecision =
  { readonly kept: true; readonly executedEpisode: string } | { readonly kept: false; readonly rule: DropRule; readonly reason: string };
export interface DecidedRunbook {
  /** The success it was made of. */
  readonly sourceEpisode: string;
  /** For `repeated` and `not-reproduced` the success's commands as they were. */
  readonly runbook: Runbook;
  readonly decision: RunbookDecision;
}
export interface RewriteOutcome {
  readonly runbooks: readonly DecidedRunbook[];
  readonly examples: readonly EpisodeTokens[];
  readonly counts: RewriteCounts;
}

const DEFAULT_MAX_EXECUTIONS = 64;

interface Candidate {
  readonly source: EpisodeRecord;
  readonly observed: readonly ObservedCommand[];
}

/**
 * Rewrites the successes of one task. Deterministic but for time-outs: the same successes give the same runbooks and examples.
 * @throws InfrastructureError, TaskError or the signal's reason from the sandbox; the caller retries the whole task
 */
export async function rewriteTask(options: RewriteOptions): Promise<RewriteOutcome> {
  const bench = new Bench(options);
  const decided: DecidedRunbook[] = [];
  const drop = (candidate: Candidate, rule: DropRule, reason: string): void => {
    decided.push({
      sourceEpisode: candidate.source.episodeId,
      runbook: buildRunbook(options.task.id, candidate.observed),
      decision: { kept: false, rule, reason },
    });
  };

  const { distinct, repeated } = distinctSuccesses(options.successes);
  for (const candidate of repeated) drop(candidate, 'repeated', 'another success has the same commands');

  const procedures: Candidate[] = [];
  for (const candidate of distinct) {
    const short = await shorten(candidate, options, bench);
    if (short === undefined) drop(candidate, 'not-reproduced', 'its commands do not pass in a fresh environment');
    else if (short.length === 0) drop({ ...candidate, observed: [] }, 'empty', 'the task passes without any command');
    else procedures.push({ source: candidate.source, observed: short });
  }

  const kept: Runbook[] = [];
  const examples: EpisodeTokens[] = [];
  for (const procedure of shortestFirst(procedures)) {
    const runbook = buildRunbook(options.task.id, procedure.observed);
    const finding = screen(runbook, procedure, kept, options);
    if (finding) {
      drop(procedure, finding.rule, finding.reason);
      continue;
    }
    if (kept.length >= options.keptPerTask) {
      drop(procedure, 'limit', `${options.keptPerTask} shorter runbooks are kept for the task`);
      continue;
    }
    const episodeId = `${procedure.source.episodeId}/replay`;
    const { result, verdict } = await bench.replay(runbookCommands(runbook), episodeId, procedure.source);
    if (result.record.stopReason !== 'exit') drop(procedure, 'too-long', `the replay ended with ${result.record.stopReason}`);
    else if (verdict.outcome !== 'passed') drop(procedure, 'failed-rerun', `verdict in the target harness: ${verdict.outcome}`);
    else {
      kept.push(runbook);
      examples.push(result.tokens);
      decided.push({ sourceEpisode: procedure.source.episodeId, runbook, decision: { kept: true, executedEpisode: episodeId } });
    }
  }
  return {
    runbooks: decided,
    examples,
    counts: { successes: options.successes.length, kept: kept.length, executions: bench.executions, dropped: countDrops(decided) },
  };
}

/** One candidate for each distinct command list; the turns of `script` episodes are flattened to their commands. */
function distinctSuccesses(successes: readonly EpisodeRecord[]): { distinct: Candidate[]; repeated: Candidate[] } {
  const distinct: Candidate[] = [];
  const repeated: Candidate[] = [];
  const seen = new Set<string>();
  for (const source of successes) {
    const observed = source.turns.flatMap((turn) => turn.commands);
    const key = JSON.stringify(observed.map((record) => record.command));
    (seen.has(key) ? repeated : distinct).push({ source, observed });
    seen.add(key);
  }
  return { distinct, repeated };
}

/** The shortest verified procedure with its evidence, as it ran in a fresh environment; undefined where the success does not pass again. */
async function shorten({ observed }: Candidate, options: RewriteOptions, bench: Bench): Promise<readonly ObservedCommand[] | undefined> {
  const commands = observed.map((record) => record.command);
  const minimal = await minimizeCommands(
    commands,
    async (candidate) => (await bench.execute(candidate)).passed,
    options.maxExecutions ?? DEFAULT_MAX_EXECUTIONS,
  );
  if (minimal.commands === undefined) return undefined;
  const kept = keepEvidence(options.task.instruction, observed, positions(commands, minimal.commands));
  const procedure = kept.map((index) => commands[index] ?? '');
  const withEvidence = await bench.execute(procedure);
  // Looking may not change an outcome, but where it does the verified whole is better than an unverified part.
  return withEvidence.passed ? withEvidence.observed : (await bench.execute(commands)).observed;
}

/** Indices of a subsequence in the list it came from (leftmost). */
function positions(list: readonly string[], subsequence: readonly string[]): number[] {
  let from = 0;
  return subsequence.map((command) => {
    const index = list.indexOf(command, from);
    from = index + 1;
    return index;
  });
}

function shortestFirst(procedures: readonly Candidate[]): Candidate[] {
  const characters = (candidate: Candidate): number => candidate.observed.reduce((sum, record) => sum + record.command.length, 0);
  // The sort is stable: equally short procedures keep the order of their episodes.
  return [...procedures].sort((a, b) => a.observed.length - b.observed.length || characters(a) - characters(b));
}

/** The first screen that objects. */
function screen(runbook: Runbook, procedure: Candidate, kept: readonly Runbook[], options: RewriteOptions): ScreenFinding | undefined {
  const { task, evaluationTexts } = options;
  const texts = (tree: Task['tests'] | undefined): string[] =>
    [...(tree?.values() ?? [])].map((file) => Buffer.from(file.data).toString('utf8'));
  return (
    screenTamper(runbook, task.workdir) ??
    screenLeak(runbook, {
      verifier: texts(task.tests),
      solution: texts(task.solution),
      instruction: task.instruction,
      outputs: procedure.observed.map((record) => `${record.stdout}\n${record.stderr}`),
      ownCommands: procedure.source.turns.flatMap((turn) => turn.commands.map((record) => record.command)),
    }) ??
    screenIrrelevant(runbook, task.instruction) ??
    (evaluationTexts ? screenContaminated(runbook, task.instruction, evaluationTexts) : undefined) ??
    screenDuplicate(runbook, kept)
  );
}

function countDrops(decided: readonly DecidedRunbook[]): Record<string, number> {
  const dropped: Record<string, number> = {};
  for (const { decision } of decided) if (!decision.kept) dropped[decision.rule] = (dropped[decision.rule] ?? 0) + 1;
  return dropped;
}

/** Executes and verifies command lists for one task, each in two fresh sandboxes (work, then verification), and counts. */
class Bench {
  readonly #options: RewriteOptions;
  readonly #known = new Map<string, { readonly passed: boolean; readonly observed: readonly ObservedCommand[] }>();
  executions = 0;

  constructor(options: RewriteOptions) {
    this.#options = options;
  }

  /**
   * Runs a list outside the target harness's bounds on turns and context. A list without a verdict counts as not passing: what makes the
   * verifier fail is no procedure to teach. Infrastructure errors are thrown.
   */
  async execute(commands: readonly string[]): Promise<{ passed: boolean; observed: readonly ObservedCommand[] }> {
    const key = JSON.stringify(commands);
    const known = this.#known.get(key);
    if (known) return known;
    const limits = { ...this.#options.limits, maxTurns: commands.length + 1 };
    const { result, verdict } = await this.#run({
      commands,
      limits,
      episodeId: `rewrite/${this.#options.task.id}/${this.executions}`,
      sample: 0,
      seed: 0,
    });
    const outcome = { passed: verdict.outcome === 'passed', observed: result.record.turns.flatMap((turn) => turn.commands) };
    this.#known.set(key, outcome);
    return outcome;
  }

  /** Runs a list as an episode of the target harness, with tokens, and verifies it. */
  async replay(
    commands: readonly string[],
    episodeId: string,
    source: EpisodeRecord,
  ): Promise<{ result: EpisodeResult; verdict: Verdict }> {
    const { limits, codec } = this.#options;
    return await this.#run({ commands, limits, episodeId, codec, sample: source.sample, seed: source.seed });
  }

  async #run(
    part: Pick<CommandsOptions, 'commands' | 'limits' | 'episodeId' | 'codec' | 'sample' | 'seed'>,
  ): Promise<{ result: EpisodeResult; verdict: Verdict }> {
    const { suite, task, provider, runKey, contextLength, workflow } = this.#options;
    const owner = { runKey, ...(workflow ? { workflow } : {}) };
    const signal = this.#options.signal ? { signal: this.#options.signal } : {};
    signal.signal?.throwIfAborted();
    this.executions += 1;
    const base = {
      suite,
      task,
      provider,
      ...owner,
      contextLength,
      harness: 'shell',
      agent: 'replay',
      purpose: 'rewrite',
      ...signal,
    } as const;
    const result = await runCommands({ ...base, ...part });
    const labels = { ...owner, episodeId: part.episodeId, purpose: 'rewrite' } as const;
    const verdict = await verify({ task, snapshot: result.snapshot, provider, labels, ...signal });
    this.#options.progress?.(this.executions);
    return { result, verdict };
  }
}
