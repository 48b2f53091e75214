/**
 * A training run's episodes as jobs in Harbor's layout (harbor-job.ts), for its viewer and other tools that read ATIF: of each stage that
 * counts one job of its rollouts and one of its evaluation. A run keeps no times of single episodes: all have their stage's.
 */
import { createHash } from 'node:crypto';
import path from 'node:path';
import { ArtifactError } from './artifacts.ts';
import { ArtifactReader, NotInArchive } from './audit/source.ts';
import type { AuditSource } from './audit/source.ts';
import { treeFiles } from './audit/graph.ts';
import { readable } from './audit/data-source.ts';
import { readChunks } from './chunks.ts';
import { writeJob, writeTrial } from './harbor-job.ts';
import { effectiveStages } from './ledger.ts';
import { UserError } from '../environment/errors.ts';
import type { Trial } from '../environment/trial/types.ts';
import type { EpisodeRecord, EpisodeTokens, EpisodeVerdict } from '../environment/types.ts';
import { errorPolicy } from '../environment/verifier/error-policy.ts';
import type { TokenizerJson } from '../policy/bpe.ts';
import { createTokenizer } from '../policy/tokenizer.ts';
import type { ChunkResult } from '../workflows/contract.ts';

export interface WrittenTrajectories {
  readonly jobs: readonly string[];
  readonly trials: number;
}

/**
 * Writes the jobs below `directory`. What is there already stays: an export that was broken off goes on.
 * @throws UserError where the run has no finished stage, ArtifactError for missing or changed artifacts, NotInArchive
 */
export async function writeTrajectories(source: AuditSource, directory: string, signal?: AbortSignal): Promise<WrittenTrajectories> {
  const reader = new ArtifactReader(source);
  const records = readable(source.ledger);
  const opened = records.find((record) => record.kind === 'opened');
  const stages = effectiveStages(records);
  if (!opened || stages.length === 0)
    throw new UserError(`${source.from}: no stage of the run is finished; there are no episodes to write yet`);
  const instructionOf = await promptReader(reader, opened.content.basePolicy);
  const jobs: string[] = [];
  let trials = 0;
  for (const { index, content, observed } of stages) {
    const batches = { rollouts: content.outputs.chunks, evaluation: content.outputs.evaluationChunks };
    for (const [purpose, parts] of Object.entries(batches)) {
      const chunks = await readChunks(reader, parts);
      if (chunks.length === 0) continue;
      const name = `${String(index).padStart(2, '0')}-${content.stage}-${purpose}`;
      const job = path.join(directory, name);
      for (const chunk of chunks) {
        for (const trial of await trialsOf(reader, chunk, observed.recordedAt, instructionOf)) {
          signal?.throwIfAborted();
          if (await writeTrial(job, trial)) trials++;
        }
      }
      const at = { startedAt: observed.recordedAt, finishedAt: observed.recordedAt };
      await writeJob({
        name,
        directory: job,
        ...at,
        totalTrials: chunks.reduce((sum, chunk) => sum + chunk.rollout.episodeCount, 0),
        concurrency: 1,
      });
      jobs.push(job);
    }
  }
  return { jobs, trials };
}

async function trialsOf(
  reader: ArtifactReader,
  { rollout, verify }: ChunkResult,
  at: string,
  instructionOf: (tokens: EpisodeTokens) => string | undefined,
): Promise<Trial[]> {
  const episodes = await reader.readJsonLines<EpisodeRecord>(rollout.episodes);
  const tokens = byEpisode(await reader.readJsonLines<EpisodeTokens>(rollout.tokens));
  const verdicts = byEpisode(await reader.readJsonLines<EpisodeVerdict>(verify.verdicts));
  return episodes.map((record): Trial => {
    const verdict = verdicts.get(record.episodeId);
    const known = tokens.get(record.episodeId);
    if (!verdict || !known)
      throw new Error(`episode ${record.episodeId} has no ${verdict ? 'tokens' : 'verdict'} in the artifacts of its chunk`);
    const { error } = verdict;
    const hash = createHash('sha256').update(record.episodeId).digest('hex');
    return {
      name: `${record.taskId.slice(0, 32)}__${hash.slice(0, 7)}`,
      task: { id: record.taskId, dir: path.posix.join(record.suite, record.taskId), checksum: record.taskChecksum },
      source: record.suite,
      instruction: instructionOf(known) ?? '',
      ...{ record, tokens: known, verdict, verifierMode: 'separate' },
      ...(error ? { error: { ...error, policy: errorPolicy(error.type) } } : {}),
      rewardValid: verdict.outcome !== 'no-verdict',
      period: { startedAt: at, finishedAt: at },
      phases: {},
      files: { agent: new Map(), verifier: new Map(), artifacts: new Map() },
    };
  });
}

function byEpisode<T extends { readonly episodeId: string }>(items: readonly T[]): Map<string, T> {
  return new Map(items.map((item) => [item.episodeId, item]));
}

/** Reads what an agent was told out of its own tokens: the task's folder may have changed, or be on another machine. */
async function promptReader(reader: ArtifactReader, policy: string): Promise<(tokens: EpisodeTokens) => string | undefined> {
  try {
    const file = treeFiles(await reader.readBytes({ sha256: policy, kind: 'policy' })).find(({ path: name }) => name === 'tokenizer.json');
    if (!file) return () => undefined;
    const json = JSON.parse((await reader.readBytes({ sha256: file.sha256, kind: 'policy' })).toString('utf8')) as TokenizerJson;
    const tokenizer = createTokenizer(json, `tokenizer of policy ${policy}`);
    const [task, agent] = [tokenizer.special('<|task|>'), tokenizer.special('<|agent|>')];
    return ({ tokens, turnIds }) => {
      const end = turnIds.findIndex((turn) => turn !== -1);
      const prompt = tokens.slice(0, end === -1 ? tokens.length : end);
      return tokenizer.decode(prompt.slice(prompt.indexOf(task ?? -1) + 1).filter((token) => token !== agent));
    };
  } catch (error) {
    // An archive without policies: everything but the instruction is there.
    if (error instanceof NotInArchive || error instanceof ArtifactError) return () => undefined;
    throw error;
  }
}
