import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { RunConfig } from '../workflows/config.ts';
import type { StageInputs, StageKind } from '../workflows/contract.ts';
import { resolveConfig } from '../workflows/profiles.ts';
import { canonicalHash } from './canonical-json.ts';
import { stageKey } from './stage-key.ts';
import type { ArtifactRef } from './types.ts';

const artifact = (name: string): ArtifactRef => ({ kind: 'policy', uri: name, sha256: canonicalHash(name), bytes: 1 });
const inputs: StageInputs = { policy: artifact('policy'), calibration: artifact('calibration'), tasksHash: 'tasks' };
const twoRounds = { rpr: { reward: ['fdr', 'spr'], iterations: [1, 2], actorLearningRate: [1e-4, 2e-4] } };

function key(kind: StageKind, round: number, changes: object = {}, given = inputs, code = 'code'): string {
  const stage = kind === 'base' ? 'Base' : `${kind.toUpperCase()}-${round}`;
  return stageKey(stage, kind, round, resolveConfig({ ...twoRounds, ...changes }), given, code);
}
/** Stages whose key a change of settings moves. */
function moved(changes: object): string[] {
  const stages: [StageKind, number][] = [['base', 0], ['rsr', 1], ['rpr', 1], ['rsr', 2], ['rpr', 2]]; // prettier-ignore
  return stages.filter(([kind, round]) => key(kind, round, changes) !== key(kind, round)).map(([kind, round]) => `${kind} ${round}`);
}
const all = ['base 0', 'rsr 1', 'rpr 1', 'rsr 2', 'rpr 2'];
const rpr = (fields: Partial<RunConfig['rpr']>): object => ({ rpr: { ...twoRounds.rpr, ...fields } });

describe('a stage has another key', () => {
  it('with another value of a setting that it reads', () => {
    assert.deepEqual(moved({ seed: 2 }), all);
    assert.deepEqual(moved({ sandbox: 'docker' }), all);
    assert.deepEqual(moved({ rollout: { maxTurns: 3 } }), all);
    assert.deepEqual(moved({ evaluation: { repeats: 2 } }), all);
    assert.deepEqual(moved({ adoption: { maxDropStandardErrors: 1 } }), all.slice(1));
    assert.deepEqual(moved({ rollout: { temperature: 0.5 } }), ['rsr 1', 'rsr 2']);
    assert.deepEqual(moved({ rsr: { epochs: 7 } }), ['rsr 1', 'rsr 2']);
    assert.deepEqual(moved(rpr({ gamma: 0.5 })), ['rpr 1', 'rpr 2']);
  });
  it('with another input or another code', () => {
    const other = [
      { policy: artifact('b') },
      { calibration: artifact('b') },
      { tasksHash: 'b' },
      { critic: artifact('b') },
      { reference: artifact('b') },
    ];
    const keys = other.map((change) => key('rpr', 1, {}, { ...inputs, ...change }));
    assert.equal(new Set([key('rpr', 1), key('rpr', 1, {}, inputs, 'other code'), ...keys]).size, 7);
  });
  it('than the same kind of stage in another round', () => {
    const same = { rpr: { reward: ['fdr'], iterations: [1], actorLearningRate: [1e-4] } };
    assert.notEqual(key('rpr', 1, same), key('rpr', 2, same));
  });
});

describe('a stage keeps its key', () => {
  it('with another value for another round', () => {
    assert.deepEqual(moved(rpr({ actorLearningRate: [1e-4, 9e-4] })), ['rpr 2']);
    assert.deepEqual(moved(rpr({ iterations: [1, 5] })), ['rpr 2']);
    assert.deepEqual(moved(rpr({ reward: ['fdr', 'fdr'] })), ['rpr 2']);
    assert.deepEqual(moved({ rsr: { learningRate: [5e-4, 1e-5] } }), ['rsr 2']);
  });
  it('with another constant of the reward that it does not use', () => {
    assert.deepEqual(moved({ reward: { fdrFloor: 0.2 } }), ['rpr 1']);
    assert.deepEqual(moved({ reward: { sprBonus: 1 } }), ['rpr 2']);
  });
  it('with another value of what does not decide its outcome', () => {
    for (const changes of [
      { rounds: 3 },
      { reuse: 'any' },
      { requireApproval: true },
      { basePolicy: '/elsewhere' },
      { rollout: { chunksInFlight: 1 } },
    ])
      assert.deepEqual(moved(changes), [], JSON.stringify(changes));
    // These choose tasks: the hash of the task lists among the inputs tells.
    assert.deepEqual([moved({ trainingTasks: 3 }), moved({ evaluation: { tasksPerSuite: 1 } })], [[], []]);
  });
  it('wherever its inputs lie', () => {
    assert.equal(key('rsr', 1, {}, { ...inputs, policy: { ...inputs.policy, uri: 'elsewhere', bytes: 9 } }), key('rsr', 1));
  });
});
