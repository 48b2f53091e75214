/** From rewards and values to what the losses need: TB-GAE per episode (docs/method.md, TB-GAE). */
import { tbGae, terminalRewards } from '../../method/tb-gae.ts';
import type { RewardedEpisode } from '../types.ts';
import { agentMask } from './batching.ts';

export interface BatchAdvantages {
  /** Per episode, one entry per token; 0 outside the agent's tokens; not yet whitened. */
  readonly advantages: number[][];
  readonly returns: number[][];
}

/** Every episode ended (a verdict was given), so nothing is bootstrapped. */
export function batchAdvantages(
  episodes: readonly RewardedEpisode[],
  values: readonly number[][],
  gamma: number,
  lambda: number,
): BatchAdvantages {
  const results = episodes.map((episode, i) =>
    tbGae({ rewards: terminalRewards(episode.turnIds, episode.reward), values: values[i]!, turnIds: episode.turnIds, gamma, lambda }),
  );
  return { advantages: results.map((one) => [...one.advantages]), returns: results.map((one) => [...one.returns]) };
}

/** The entries at agent tokens, over all episodes in order. */
export function atAgentTokens(episodes: readonly RewardedEpisode[], arrays: readonly (readonly number[])[]): number[] {
  return episodes.flatMap((episode, i) => {
    const mask = agentMask(episode);
    return arrays[i]!.filter((_, t) => mask[t] === 1);
  });
}
