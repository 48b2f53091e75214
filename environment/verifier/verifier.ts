/** The verdict of an episode in training: always in a separate sandbox, on the files that the episode left in its workdir. */
import type { Verdict } from '../types.ts';
import { verifySeparate } from './separate.ts';
import type { VerifySeparateOptions } from './separate.ts';
import { snapshotArtifacts } from './training-snapshot.ts';

export type VerifyOptions = VerifySeparateOptions;

/**
 * @returns `passed` iff the reward is at least 1; whatever is wrong with the verifier is `no-verdict`, never a score of 0
 * @throws InfrastructureError when the sandbox fails (retry in a fresh one), TaskError when it cannot run the task
 */
export async function verify(options: VerifyOptions): Promise<Verdict> {
  const artifacts = snapshotArtifacts(options.snapshot);
  return (await verifySeparate({ ...options, ...(artifacts ? { artifacts } : {}) })).verdict;
}
