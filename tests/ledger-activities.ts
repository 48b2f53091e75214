/**
 * Recorded activities (tests/recorded-activities.ts) whose artifacts are really stored, with the real activities around a run and
 * its stages: `prepareRun`, `openStage`, `recordStage`, `closeRun`, `collectChunks` on a data folder of the test's own. For tests of ledgers, reuse,
 * resets and forks with real workflows in seconds.
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { activity } from '../activities/failures.ts';
import { prepareRun } from '../activities/prepare-run.ts';
import { closeRun, openStage, recordStage } from '../activities/record-stage.ts';
import type { RolloutDependencies } from '../activities/dependencies.ts';
import type { ArtifactStore } from '../records/artifacts.ts';
import type { ArtifactRef } from '../records/types.ts';
import type { CollectChunksInput, GpuActivities, RolloutActivities } from '../workflows/contract.ts';
import { recordedActivities } from './recorded-activities.ts';
import type { Behaviour, Call } from './recorded-activities.ts';

/** Activities that never touch the sampler, sandboxes or tasks need only these. */
export type LedgerDependencies = Pick<RolloutDependencies, 'store' | 'data'>;

export function ledgerActivities(
  deps: LedgerDependencies,
  behaviour: Behaviour = {},
): { calls: Call[]; rollout: RolloutActivities; gpu: GpuActivities } {
  const { calls, rollout, gpu } = recordedActivities(behaviour);
  const collectChunks = ({ store }: LedgerDependencies, { chunks }: CollectChunksInput): Promise<ArtifactRef> =>
    store.putJsonLines('chunks', chunks);
  const real = { prepareRun, openStage, recordStage, closeRun, collectChunks };
  const around = Object.fromEntries(
    Object.entries(real).map(([name, run]) => [
      name,
      async (input: never) => {
        calls.push({ name: name as Call['name'], input });
        await behaviour.before?.({ name: name as Call['name'], input });
        return await activity((given: never) => (run as (d: LedgerDependencies, i: never) => Promise<unknown>)(deps, given))(input);
      },
    ]),
  );
  const kept = (set: object): Record<string, unknown> =>
    Object.fromEntries(
      Object.entries(set).map(([name, run]) => [
        name,
        async (input: unknown) => await storeAll(deps.store, await (run as (i: unknown) => Promise<unknown>)(input)),
      ]),
    );
  return { calls, rollout: { ...kept(rollout), ...around } as unknown as RolloutActivities, gpu: kept(gpu) as unknown as GpuActivities };
}

/** The value with each made-up reference replaced by that of a real artifact; equal ones stay equal. */
async function storeAll(store: ArtifactStore, value: unknown): Promise<unknown> {
  if (isReference(value)) return await storeOne(store, value);
  if (Array.isArray(value)) return await Promise.all(value.map((item) => storeAll(store, item)));
  if (typeof value !== 'object' || value === null) return value;
  const entries = Object.entries(value).map(async ([key, item]) => [key, await storeAll(store, item)] as const);
  return Object.fromEntries(await Promise.all(entries));
}

async function storeOne(store: ArtifactStore, { kind, sha256 }: ArtifactRef): Promise<ArtifactRef> {
  if (kind !== 'policy' && kind !== 'critic') return await store.putJson(kind, { madeFrom: sha256 });
  const directory = await mkdtemp(path.join(tmpdir(), 'terminal-rsi-model-'));
  try {
    await writeFile(path.join(directory, 'model.safetensors'), sha256);
    return await store.putDirectory(kind, directory);
  } finally {
    await rm(directory, { recursive: true });
  }
}

function isReference(value: unknown): value is ArtifactRef {
  return typeof value === 'object' && value !== null && 'sha256' in value && 'uri' in value;
}
