/** Small records for tests of ledgers and of what reads them. */
import { profiles } from '../workflows/profiles.ts';
import { canonicalHash } from './canonical-json.ts';
import type { RecordBody, StageRecordBody } from './ledger-schema.ts';

const hash = (name: string): string => canonicalHash(name);
const artifact = (kind: string, name: string): { kind: string; uri: string; sha256: string; bytes: number } => ({
  ...{ kind, uri: `artifact:${hash(name)}`, sha256: hash(name), bytes: 1 },
});
const at = '2026-01-01T00:00:00.000Z';

export function opened(workflowId = 'run', recordedAt = at, config = profiles.smoke): RecordBody & { kind: 'opened' } {
  return {
    kind: 'opened',
    content: {
      ...{ config, configHash: canonicalHash(config), seed: config.seed, code: 'c0de', basePolicy: hash('base') },
      tasksHash: hash('tasks'),
    },
    observed: { recordedAt, workflowId, codeVersion: 'source:c0de' },
  };
}

/** `version` tells two results of one stage apart. */
export function stage(name: string, version = 0): StageRecordBody {
  const counts = { episodes: 4, passed: 3, failed: 1, noVerdict: 0, agentTokens: 10, totalTokens: 100, timeouts: 0 };
  return {
    kind: 'stage',
    content: {
      ...{ stage: name, stageKind: name === 'Base' ? 'base' : name.startsWith('RSR') ? 'rsr' : 'rpr', round: 1 },
      ...{ stageKey: hash(`key of ${name} ${version}`), configHash: canonicalHash(profiles.smoke), seed: 1, code: 'c0de' },
      inputs: { policy: hash('base'), calibration: hash('calibration'), tasksHash: hash('tasks') },
      result: artifact('stage', `${name} ${version}`),
      outputs: {
        ...{ policy: artifact('policy', name), evaluation: artifact('evaluation', name) },
        ...{ chunks: [], evaluationChunks: [], runbooks: [], examples: [], batches: [] },
      },
      counts: { training: counts, evaluation: { episodes: 2, tokens: 20, noVerdict: 0 }, dropped: {}, kept: 0 },
      decision: { adopted: true, reason: 'better', startedBy: 'rule', adoptedBy: 'rule' },
    },
    observed: {
      ...{ recordedAt: at, codeVersion: 'source:c0de', startedAt: at, seconds: 1 },
      cost: { gpuSeconds: 1, cpuActivitySeconds: 1, episodes: 6, tokens: 30 },
      ...{ activities: {}, workers: [], histories: [] },
    },
  };
}

export function restarted(from: string, kept: string[]): RecordBody {
  return { kind: 'restarted', content: { from, kept }, observed: { recordedAt: at, by: 'Ada' } };
}

export function closed(): RecordBody {
  return {
    kind: 'closed',
    content: { finalPolicy: hash('base'), stages: [] },
    observed: { recordedAt: at, result: artifact('result', 'result'), histories: [] },
  };
}
