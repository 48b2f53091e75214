/** A stage's counts, drops and seeds from its episodes and verdicts; and which policy sampled them. */
import { episodeSeed } from '../../activities/episode-names.ts';
import type { EpisodeRecord, EpisodeTokens, EpisodeVerdict } from '../../environment/types.ts';
import type { DecidedRunbook } from '../../environment/rewriter.ts';
import type { ChunkResult, EpisodeCounts, PpoResult } from '../../workflows/contract.ts';
import { readChunks } from '../chunks.ts';
import type { StageRecord } from '../lineage.ts';
import type { ArtifactRef } from '../types.ts';
import type { AuditContext } from './context.ts';

type Sum = { -readonly [K in keyof EpisodeCounts]: number };
const none = (): Sum => ({ episodes: 0, passed: 0, failed: 0, noVerdict: 0, agentTokens: 0, totalTokens: 0, timeouts: 0 });

export async function checkEpisodes(context: AuditContext, record: StageRecord): Promise<void> {
  const { findings } = context;
  const result = await context.result(record);
  if (!result) return;
  const { content } = record;
  const { stage } = content;
  const place = context.place(record);
  const training = none();
  let whole = true;
  for (const batch of result.batches) {
    const sums = await checkBatch(context, record, batch.chunks, policyOf(context, record, batch.purpose));
    whole &&= sums !== undefined;
    if (sums) for (const field of Object.keys(training) as (keyof Sum)[]) training[field] += sums[field];
    if (sums && batch.droppedNoVerdict !== undefined)
      findings.equal(
        'counts',
        `result of ${stage}, batch ${batch.purpose}, droppedNoVerdict`,
        sums.noVerdict,
        batch.droppedNoVerdict,
        stage,
      );
  }
  if (whole) {
    findings.equal('counts', `${place}, content.counts.training`, training, content.counts.training, stage);
    findings.equal('counts', `result of ${stage}, counts`, training, result.counts, stage);
  }
  const evaluated = await checkBatch(context, record, result.evaluation.chunks, result.policy.sha256);
  if (evaluated) {
    const { episodes, agentTokens: tokens, noVerdict } = evaluated;
    findings.equal('counts', `${place}, content.counts.evaluation`, { episodes, tokens, noVerdict }, content.counts.evaluation, stage);
  }
  await context.attempt('counts', `runbooks of ${stage}`, () => checkDrops(context, record, whole ? training.noVerdict : undefined));
}

/** Screens and drops by rule. `noVerdict`: training episodes without a verdict. */
async function checkDrops(context: AuditContext, record: StageRecord, noVerdict: number | undefined): Promise<void> {
  const { content } = record;
  const dropped: Record<string, number> = {};
  let kept = 0;
  for (const runbooks of content.outputs.runbooks) {
    for (const { decision } of await context.reader.readJsonLines<DecidedRunbook>(runbooks)) {
      if (decision.kept) kept++;
      else dropped[decision.rule] = (dropped[decision.rule] ?? 0) + 1;
    }
  }
  const result = await context.result(record);
  // An RSR stage drops episodes without a verdict by never rewriting them; they are counted there as `noVerdict`.
  const rewarded = result?.batches.some((batch) => batch.droppedNoVerdict !== undefined) ?? false;
  if (rewarded && noVerdict === undefined) return;
  if (rewarded && noVerdict !== undefined && noVerdict > 0) dropped['no-verdict'] = noVerdict;
  context.findings.equal('counts', `${context.place(record)}, content.counts.dropped`, dropped, content.counts.dropped, content.stage);
  context.findings.equal('counts', `${context.place(record)}, content.counts.kept`, kept, content.counts.kept, content.stage);
}

/** The policy that rolled a batch out; undefined where only histories that are not here would tell. */
function policyOf(context: AuditContext, record: StageRecord, purpose: string): string | undefined {
  const iteration = /^ppo-(\d+)$/.exec(purpose)?.[1];
  if (iteration === undefined || iteration === '1') return record.content.inputs.policy;
  const before = context
    .historiesOf(record)
    .flatMap((history) => context.calls(history, 'jointPpo'))
    .find(({ input }) => (input as { iteration?: number }).iteration === Number(iteration) - 1);
  return (before?.result as PpoResult | undefined)?.actor.sha256;
}

/** Sums over the chunks; undefined where some could not be read. */
async function checkBatch(
  context: AuditContext,
  record: StageRecord,
  parts: readonly ArtifactRef[],
  policy: string | undefined,
): Promise<Sum | undefined> {
  const { stage } = record.content;
  const chunks = await context.attempt('counts', `chunks of ${stage}`, () => readChunks(context.reader, parts));
  if (!chunks) return undefined;
  const sums = none();
  for (const chunk of chunks) {
    const counted = await context.attempt('counts', `episodes ${chunk.rollout.episodes.sha256.slice(0, 12)} of ${stage}`, () =>
      checkChunk(context, record, chunk, policy),
    );
    if (!counted) return undefined;
    for (const field of Object.keys(sums) as (keyof Sum)[]) sums[field] += counted[field];
  }
  return sums;
}

async function checkChunk(
  context: AuditContext,
  record: StageRecord,
  { rollout, verify }: ChunkResult,
  policy: string | undefined,
): Promise<Sum> {
  const { findings, reader } = context;
  const { stage, seed } = record.content;
  const episodes = await reader.readJsonLines<EpisodeRecord>(rollout.episodes);
  const verdicts = await reader.readJsonLines<EpisodeVerdict>(verify.verdicts);
  const at = `episodes artifact ${rollout.episodes.sha256.slice(0, 12)}`;
  const counted: Sum = {
    episodes: episodes.length,
    ...{ passed: count(verdicts, 'passed'), failed: count(verdicts, 'failed'), noVerdict: count(verdicts, 'no-verdict') },
    agentTokens: sum(episodes, ({ agentTokens }) => agentTokens),
    totalTokens: sum(episodes, ({ totalTokens }) => totalTokens),
    timeouts: sum(episodes, timeouts),
  };
  const { episodeCount, agentTokens, totalTokens, timeouts: timedOut } = rollout;
  const { passed, failed, noVerdict } = verify;
  findings.equal(
    'counts',
    `${at} and its verdicts`,
    counted,
    { episodes: episodeCount, passed, failed, noVerdict, agentTokens, totalTokens, timeouts: timedOut },
    stage,
  );
  const named = (one: { episodeId: string; suite: string; taskId: string; family: string; tier: string }): string =>
    [one.episodeId, one.suite, one.taskId, one.family, one.tier].join(' ');
  findings.equal(
    'counts',
    `verdicts artifact ${verify.verdicts.sha256.slice(0, 12)} against its episodes`,
    episodes.map(named),
    verdicts.map(named),
    stage,
  );
  for (const episode of episodes) {
    const { episodeId, suite, taskId, harness, sample } = episode;
    const purpose = episodeId.split('/')[1] ?? '';
    const place = `${at}, ${episodeId}`;
    findings.equal('counts', `${place}, its name`, [stage, purpose, suite, taskId, harness, sample].join('/'), episodeId, stage);
    if (policy !== undefined) findings.equal('counts', `${place}, agent`, `policy:${policy}`, episode.agent, stage);
    const request = { task: { suite, id: taskId, family: '', tier: episode.tier, checksum: '' }, harness, sample };
    const expected = episodeSeed(seed, { runKey: '', stage, purpose }, request);
    if (expected === episode.seed || record.content.code === context.code)
      findings.equal('counts', `${place}, seed`, expected, episode.seed, stage);
    else
      findings.note(
        `Seeds of ${stage} were derived by other code (${record.content.code}; this is ${context.code}) and cannot be derived again here.`,
      );
  }
  await context.attempt('counts', `tokens of ${stage}`, async () => {
    const tokens = await reader.readJsonLines<EpisodeTokens>(rollout.tokens);
    const expected = episodes.map((episode) => [episode.episodeId, episode.totalTokens, episode.agentTokens]);
    const found = tokens.map((one) => [one.episodeId, one.tokens.length, one.turnIds.filter((turn) => turn >= 0).length]);
    findings.equal('counts', `tokens artifact ${rollout.tokens.sha256.slice(0, 12)} against its episodes`, expected, found, stage);
  });
  return counted;
}

/** As activities/rollout.ts counts them. */
function timeouts({ turns, stopReason }: EpisodeRecord): number {
  return turns.flatMap(({ commands }) => commands).filter(({ timedOut }) => timedOut).length + (stopReason === 'agent-timeout' ? 1 : 0);
}
function count(verdicts: readonly EpisodeVerdict[], outcome: EpisodeVerdict['outcome']): number {
  return verdicts.filter((verdict) => verdict.outcome === outcome).length;
}
function sum<T>(list: readonly T[], of: (one: T) => number): number {
  return list.reduce((total, one) => total + of(one), 0);
}
