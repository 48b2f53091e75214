/**
 * Verifies one chunk: every episode in a fresh sandbox that the agent never touched. Where the verifier gives no verdict
 * it is tried again (judge.ts); what still has none is recorded so, never scored 0.
 */
import { activityInfo, cancellationSignal } from '@temporalio/activity';
import { availableParallelism } from 'node:os';
import { InfrastructureError, TaskError } from '../environment/errors.ts';
import type { EpisodeRecord, EpisodeVerdict, Verdict, WorkspaceSnapshot } from '../environment/types.ts';
import { taskKey } from '../records/calibration.ts';
import type { VerifyInput, VerifyResult } from '../workflows/contract.ts';
import { forEachConcurrently } from './concurrency.ts';
import type { RolloutDependencies } from './dependencies.ts';
import { journalFile } from './episode-names.ts';
import { startHeartbeat } from './heartbeat.ts';
import { Journal } from './journal.ts';
import { judge } from './judge.ts';
import { startingAgain } from './lost-parts.ts';
import { countVerdict } from './metrics.ts';

export const VERIFICATIONS = 2 * availableParallelism();

export async function verify(deps: RolloutDependencies, input: VerifyInput): Promise<VerifyResult> {
  const { store, data } = deps;
  const { key, chunk, sandbox } = input;
  const records = await store.readJsonLines<EpisodeRecord>(input.episodes);
  const snapshots = new Map(
    (await store.readJsonLines<WorkspaceSnapshot>(input.snapshots)).map((snapshot) => [snapshot.episodeId, snapshot]),
  );
  const provider = deps.provider(sandbox);
  const { workflowExecution: workflow } = activityInfo();
  const inputs = { sandbox, snapshots: input.snapshots.sha256 };
  const journal = await Journal.open<EpisodeVerdict>(journalFile(data, key, `${chunk}-verdicts`), inputs);
  const tries = await Journal.open<string>(journalFile(data, key, `${chunk}-tries`), inputs);
  const beat = startHeartbeat(() => ({ done: journal.size, total: records.length }));
  try {
    await forEachConcurrently(records, VERIFICATIONS, cancellationSignal(), async (record, signal) => {
      const { episodeId, suite, taskId, family, tier } = record;
      if (journal.get(episodeId)) return;
      const snapshot = snapshots.get(episodeId);
      if (!snapshot) throw new TaskError(`episode ${episodeId} has no snapshot in ${input.snapshots.uri}`);
      const dir = input.directories?.[taskKey(record)];
      const task = await deps.task({ suite, id: taskId, checksum: record.taskChecksum, ...(dir === undefined ? {} : { dir }) });
      const options = { task, snapshot, provider, runKey: key.runKey, ...(workflow ? { workflow } : {}), tries, signal };
      const verdict = await startingAgain(signal, () => judge(options));
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
    await tries.close();
  }
}
