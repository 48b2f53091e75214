import assert from 'node:assert/strict';
import { test } from 'node:test';
import { episodeSeed } from './episode-names.ts';
import type { EpisodeRequest } from '../workflows/contract.ts';

const request: EpisodeRequest = {
  task: { suite: 'core', id: 'copy-file-1', family: 'copy-file', tier: 'easy', checksum: '' },
  harness: 'shell',
  sample: 0,
};
const seed = (stage: string, purpose: string, runKey = 'a'): number => episodeSeed(1, { runKey, stage, purpose }, request, 0);

test('the n-th evaluation of every stage draws the same numbers, its other evaluations do not', () => {
  assert.equal(seed('Base', 'evaluation-1'), seed('RPR-2', 'evaluation-1'));
  assert.notEqual(seed('Base', 'evaluation-1'), seed('Base', 'evaluation-2'));
});

test('training episodes draw other numbers in every stage and iteration, and the same in another run with the same seed', () => {
  assert.notEqual(seed('RSR-1', 'rollout'), seed('RSR-2', 'rollout'));
  assert.notEqual(seed('RPR-1', 'ppo-1'), seed('RPR-1', 'ppo-2'));
  assert.equal(seed('RSR-1', 'rollout', 'a'), seed('RSR-1', 'rollout', 'b'));
});
