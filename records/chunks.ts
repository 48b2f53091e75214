/** The list of a batch's chunks, which histories carry by reference only. */
import type { ChunkResult } from '../workflows/contract.ts';
import type { ArtifactId, ArtifactStore } from './artifacts.ts';

/** All chunks of the parts, in order. Throws ArtifactError for a missing or changed part. */
export async function readChunks(store: Pick<ArtifactStore, 'readJsonLines'>, parts: readonly ArtifactId[]): Promise<ChunkResult[]> {
  const lists: ChunkResult[][] = [];
  for (const part of parts) lists.push(await store.readJsonLines<ChunkResult>(part));
  return lists.flat();
}
