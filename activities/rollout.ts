/**
 * Rolls out one chunk of episodes, all at the same time, because the sampler is fastest with many. Finished episodes are
 * journalled; the artifacts list them in the order of the request, whatever order they finished in.
 */
import { activityInfo, cancellationSignal } from '@temporalio/activity';
import { availableParallelism } from 'node:os';
import { InfrastructureError } from '../environment/errors.ts';
import { runEpisode } from '../environment/harness/harness.ts';
import type { EpisodeResult } from '../environment/harness/harness.ts';
import type { EpisodeRecord } from '../environment/types.ts';
import type { EpisodeRequest, RolloutInput, RolloutResult } from '../workflows/contract.ts';
import { forEachConcurrently } from './concurrency.ts';
import type { RolloutDependencies } from './dependencies.ts';
import { episodeId, episodeSeed, journalFile } from './episode-names.ts';
import { startHeartbeat } from './heartbeat.ts';
import { Journal } from './journal.ts';
import { startingAgain } from './lost-parts.ts';
import { countEpisode } from './metrics.ts';
import { ownSessions } from './session-names.ts';

/** A container costs tens of megabytes and its start a core for a moment; an embedded sandbox costs next to nothing. */
const DOCKER_EPISODES = Math.max(8, 4 * availableParallelism());

export async function rollout(deps: RolloutDependencies, input: RolloutInput): Promise<RolloutResult> {
  const { store, data } = deps;
  const { key, chunk, runSeed, sandbox, temperature, rollout: limits, episodes, policy } = input;
  const text = await deps.policy(await store.directory(policy));
  const provider = deps.provider(sandbox);
  const { workflowExecution: workflow } = activityInfo();
  const inputs = { policy: policy.sha256, runSeed, sandbox, temperature, limits, tasks: episodes.map(({ task }) => task.checksum) };
  const journal = await Journal.open<EpisodeResult>(journalFile(data, key, String(chunk)), inputs);
  let restarts = 0;
  let turns = 0;
  const beat = startHeartbeat(() => ({ done: journal.size, total: episodes.length, turns, restarts }));
  try {
    const roll = async (request: EpisodeRequest, signal: AbortSignal): Promise<void> => {
      const id = episodeId(key, request);
      if (journal.get(id)) return;
      const task = await deps.task(request.task);
      const run = (restart: number): Promise<EpisodeResult> =>
        runEpisode({
          episodeId: id,
          suite: request.task.suite,
          task,
          harness: request.harness,
          sample: request.sample,
          seed: episodeSeed(runSeed, key, request),
          turnSeed: (turn) => episodeSeed(runSeed, key, request, turn),
          provider,
          runKey: key.runKey,
          ...(workflow ? { workflow } : {}),
          limits,
          ...text,
          sampler: ownSessions(deps.sampler, `${key.runKey}/${activityInfo().attempt}/${restart}`, () => turns++),
          policy: policy.sha256,
          temperature,
          signal,
        });
      const result = await startingAgain(signal, run, { onRestart: () => restarts++ });
      await journal.append(id, result);
      countEpisode(key, result.record);
    };
    await forEachConcurrently(episodes, sandbox === 'docker' ? DOCKER_EPISODES : episodes.length, cancellationSignal(), roll);
    const results = episodes.map((request) => {
      const result = journal.get(episodeId(key, request));
      if (!result) throw new InfrastructureError(`episode ${episodeId(key, request)} is missing in its journal`);
      return result;
    });
    return {
      episodes: await store.putJsonLines(
        'episodes',
        results.map(({ record }) => record),
      ),
      tokens: await store.putJsonLines(
        'tokens',
        results.map(({ tokens }) => tokens),
      ),
      snapshots: await store.putJsonLines(
        'snapshots',
        results.map(({ snapshot }) => snapshot),
      ),
      episodeCount: results.length,
      agentTokens: results.reduce((sum, { record }) => sum + record.agentTokens, 0),
      totalTokens: results.reduce((sum, { record }) => sum + record.totalTokens, 0),
      timeouts: results.reduce((sum, { record }) => sum + timeouts(record), 0),
    };
  } finally {
    beat.stop();
    await journal.close();
  }
}

/** Commands that ran into a time limit, and an episode that did. */
function timeouts({ turns, stopReason }: EpisodeRecord): number {
  const commands = turns.flatMap((turn) => turn.commands).filter(({ timedOut }) => timedOut).length;
  return commands + (stopReason === 'agent-timeout' ? 1 : 0);
}
