/**
 * Verifies one chunk: every episode in a fresh sandbox that the agent never touched. Where the verifier gives no verdict
 * it is tried again here; what still has none is recorded so, never scored 0.
 */
import { activityInfo, cancellationSignal } from '@temporalio/activity';
import { availableParallelism } from 'node:os';
import { InfrastructureError } from '../environment/errors.ts';
import type { EpisodeRecord, EpisodeVerdict, SandboxProvider, Task, Verdict, WorkspaceSnapshot } from '../environment/types.ts';
import { verify as verifyEpisode } from '../environment/verifier.ts';
import type { VerifyInput, VerifyResult } from '../workflows/contract.ts';
import { forEachConcurrently } from './concurrency.ts';
import type { RolloutDependencies } from './dependencies.ts';
import { journalFile } from './episode-names.ts';
import { startHeartbeat } from './heartbeat.ts';
import { Journal } from './journal.ts';
import { countVerdict } from './metrics.ts';

const RETRIES = 2;
/** From this attempt on a sandbox that fails is the episode's doing (it may leave behind what no sandbox survives), not an outage. */
const OUTAGE_ATTEMPTS = 5;
export const VERIFICATIONS = 2 * availableParallelism();

export async function verify(deps: RolloutDependencies, input: VerifyInput): Promise<VerifyResult> {
  const { store, data } = deps;
  const { key, chunk, sandbox } = input;
  const records = await store.readJsonLines<EpisodeRecord>(input.episodes);
  const snapshots = new Map(
    (await store.readJsonLines<WorkspaceSnapshot>(input.snapshots)).map((snapshot) => [snapshot.episodeId, snapshot]),
  );
  const provider = deps.provider(sandbox);
  const journal = await Journal.open<EpisodeVerdict>(journalFile(data, key, `${chunk}-verdicts`), {
    sandbox,
    snapshots: input.snapshots.sha256,
  });
  const beat = startHeartbeat(() => ({ done: journal.size, total: records.length }));
  try {
    await forEachConcurrently(records, VERIFICATIONS, cancellationSignal(), async (record, signal) => {
      const { episodeId, suite, taskId, family, tier } = record;
      if (journal.get(episodeId)) return;
      const snapshot = snapshots.get(episodeId);
      if (!snapshot) throw new InfrastructureError(`episode ${episodeId} has no snapshot in ${input.snapshots.uri}`);
      const task = await deps.task({ suite, id: taskId, checksum: record.taskChecksum });
      const verdict = await judge(task, snapshot, provider, key.runKey, signal);
      await journal.append(episodeId, { ...verdict, episodeId, suite, taskId, family, tier });
      countVerdict(key, verdict);
    });
    const verdicts = records.map(({ episodeId }) => {
      const verdict = journal.get(episodeId);
      if (!verdict) throw new InfrastructureError(`episode ${episodeId} is missing in its journal`);
      return verdict;
    });
    const count = (outcome: Verdict['outcome']): number => verdicts.filter((verdict) => verdict.outcome === outcome).length;
    return {
      verdicts: await store.putJsonLines('verdicts', verdicts),
      passed: count('passed'),
      failed: count('failed'),
      noVerdict: count('no-verdict'),
    };
  } finally {
    beat.stop();
    await journal.close();
  }
}

/** One episode's verdict, after up to three tries where there is none. */
export async function judge(
  task: Task,
  snapshot: WorkspaceSnapshot,
  provider: SandboxProvider,
  runKey: string,
  signal: AbortSignal,
): Promise<Verdict> {
  const labels = { runKey, episodeId: snapshot.episodeId, purpose: 'verify' } as const;
  for (let retry = 0; ; retry++) {
    try {
      const verdict = await verifyEpisode({ task, snapshot, provider, labels, signal });
      if (verdict.outcome !== 'no-verdict' || retry === RETRIES) return verdict;
    } catch (error) {
      signal.throwIfAborted();
      if (!(error instanceof InfrastructureError)) throw error;
      if (retry < RETRIES) continue;
      if (activityInfo().attempt < OUTAGE_ATTEMPTS) throw error;
      return { outcome: 'no-verdict', checks: [], error: { type: 'InfrastructureError', message: error.message } };
    }
  }
}
