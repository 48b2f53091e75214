/**
 * Rewrites the successes of a group of tasks into screened, re-executed examples (environment/rewriter.ts), a few tasks
 * at a time. Finished tasks are journalled.
 */
import { activityInfo, cancellationSignal } from '@temporalio/activity';
import { InfrastructureError } from '../environment/errors.ts';
import { rewriteTask } from '../environment/rewriter.ts';
import type { RewriteOutcome } from '../environment/rewriter.ts';
import type { EpisodeRecord, EpisodeVerdict } from '../environment/types.ts';
import { addRewriteCounts } from '../method/rewrite-counts.ts';
import type { ArtifactStore } from '../records/artifacts.ts';
import { taskKey } from '../records/calibration.ts';
import { readChunks } from '../records/chunks.ts';
import type { ChunkResult, RewriteInput, RewriteResult } from '../workflows/contract.ts';
import { forEachConcurrently } from './concurrency.ts';
import type { RolloutDependencies } from './dependencies.ts';
import { journalFile } from './episode-names.ts';
import { startHeartbeat } from './heartbeat.ts';
import { Journal } from './journal.ts';
import { startingAgain } from './lost-parts.ts';
import { countRewrites } from './metrics.ts';
import { VERIFICATIONS } from './verify.ts';

export async function rewrite(deps: RolloutDependencies, input: RewriteInput): Promise<RewriteResult> {
  const { store, data } = deps;
  const { key, chunk, sandbox, tasks, keptPerTask, rollout: limits } = input;
  const all = await readChunks(store, input.chunks);
  const listed = input.places.map((place) => {
    const found = all[place];
    if (!found) throw new RangeError(`rewrite ${key.stage}: chunk ${place} of ${all.length} is not in the batch`);
    return found;
  });
  const successes = await successesByTask(store, listed);
  const text = await deps.policy(await store.directory(input.policy));
  const provider = deps.provider(sandbox);
  const chunks = listed.map(({ rollout, verify }) => [rollout.episodes.sha256, verify.verdicts.sha256]);
  const inputs = { sandbox, keptPerTask, limits, policy: input.policy.sha256, chunks, tasks: tasks.map(({ checksum }) => checksum) };
  const journal = await Journal.open<RewriteOutcome>(journalFile(data, key, String(chunk)), inputs);
  const { workflowExecution: workflow } = activityInfo();
  let executions = 0;
  const beat = startHeartbeat(() => ({ done: journal.size, total: tasks.length, executions }));
  try {
    await forEachConcurrently(tasks, VERIFICATIONS, cancellationSignal(), async (listing, signal) => {
      const name = taskKey({ suite: listing.suite, taskId: listing.id });
      if (journal.get(name)) return;
      const task = await deps.task(listing);
      const options = {
        suite: listing.suite,
        task,
        successes: successes.get(name) ?? [],
        provider,
        ...text,
        runKey: key.runKey,
        ...(workflow ? { workflow } : {}),
        limits,
        keptPerTask,
        progress: () => executions++,
        signal,
      };
      const outcome = await startingAgain(signal, () => rewriteTask(options));
      await journal.append(name, outcome);
      countRewrites(outcome.counts);
    });
    const outcomes = tasks.map(({ suite, id }) => {
      const outcome = journal.get(taskKey({ suite, taskId: id }));
      if (!outcome) throw new InfrastructureError(`task ${suite}/${id} is missing in its journal`);
      return outcome;
    });
    return {
      runbooks: await store.putJsonLines(
        'runbooks',
        outcomes.flatMap(({ runbooks }) => runbooks),
      ),
      examples: await store.putJsonLines(
        'examples',
        outcomes.flatMap(({ examples }) => examples),
      ),
      counts: addRewriteCounts(outcomes.map(({ counts }) => counts)),
    };
  } finally {
    beat.stop();
    await journal.close();
  }
}

async function successesByTask(store: ArtifactStore, chunks: readonly ChunkResult[]): Promise<Map<string, EpisodeRecord[]>> {
  const successes = new Map<string, EpisodeRecord[]>();
  for (const { rollout, verify } of chunks) {
    const verdicts = await store.readJsonLines<EpisodeVerdict>(verify.verdicts);
    const passed = new Set(verdicts.filter(({ outcome }) => outcome === 'passed').map(({ episodeId }) => episodeId));
    for (const record of await store.readJsonLines<EpisodeRecord>(rollout.episodes)) {
      if (passed.has(record.episodeId)) successes.set(taskKey(record), [...(successes.get(taskKey(record)) ?? []), record]);
    }
  }
  return successes;
}
