import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { runConfigSchema } from './config.ts';
import { ConfigError, inRound, profiles, resolveConfig } from './profiles.ts';

function errorsOf(input: unknown): string[] {
  try {
    resolveConfig(input);
  } catch (error) {
    assert.ok(error instanceof ConfigError);
    return error.message.split('\n');
  }
  assert.fail('expected a ConfigError');
}

describe('profiles', () => {
  for (const [name, profile] of Object.entries(profiles)) {
    it(`${name} is a complete configuration`, () => {
      assert.deepEqual(runConfigSchema.parse(profile), profile);
      assert.equal(profile.profile, name);
    });
  }

  it('quick is what an empty input means, whether {}, null or nothing', () => {
    for (const input of [{}, null, undefined]) assert.deepEqual(resolveConfig(input), profiles.quick);
  });
});

describe('merging an input over its profile', () => {
  it('keeps the other fields of an object', () => {
    const config = resolveConfig({ profile: 'smoke', rpr: { gamma: 0.9, stopRules: { maxKl: 0.5 } } });
    assert.equal(config.rpr.gamma, 0.9);
    assert.equal(config.rpr.lambda, profiles.smoke.rpr.lambda);
    assert.deepEqual(config.rpr.stopRules, { ...profiles.smoke.rpr.stopRules, maxKl: 0.5 });
  });

  it('replaces lists', () => {
    assert.deepEqual(resolveConfig({ rsr: { learningRate: [0.25] } }).rsr.learningRate, [0.25]);
  });

  it('takes null for "as in the profile", which is how a form sends an empty field', () => {
    assert.equal(resolveConfig({ rsr: { epochs: null } }).rsr.epochs, profiles.quick.rsr.epochs);
  });

  it('leaves the profiles as they are', () => {
    const before = structuredClone(profiles);
    resolveConfig({ profile: 'full', rollout: { chunkSize: 3 } });
    assert.deepEqual(profiles, before);
  });
});

describe('a wrong input', () => {
  it('names every bad field, its value and what was expected', () => {
    assert.deepEqual(
      errorsOf({ rpr: { gamma: 1.5, reward: ['fdr', 'xyz'] }, seed: -1, requireApproval: 'yes', rollout: { temperature: 0 } }),
      [
        'seed: got -1, expected a whole number between 0 and 4294967295',
        'requireApproval: got "yes", expected true or false',
        'rollout.temperature: got 0, expected a number above 0',
        'rpr.reward.1: got "xyz", expected one of fdr, spr',
        'rpr.gamma: got 1.5, expected a number between 0 and 1',
      ],
    );
  });

  it('names the nearest known field for one that does not exist', () => {
    assert.deepEqual(errorsOf({ rpr: { gama: 0.9 }, sed: 3 }), [
      'rpr.gama: got 0.9, expected no such field; the nearest known one is rpr.gamma',
      'sed: got 3, expected no such field; the nearest known one is seed',
    ]);
  });

  it('names the three profiles', () => {
    assert.deepEqual(errorsOf({ profile: 'quik' }), ['profile: got "quik", expected one of smoke, quick, full']);
    assert.deepEqual(errorsOf({ profile: 'toString' }), ['profile: got "toString", expected one of smoke, quick, full']);
  });

  it('has no more batches than one history holds', () => {
    const rounds = { rounds: 8, evaluation: { repeats: 3 } };
    assert.equal(resolveConfig({ ...rounds, rpr: { iterations: [13] } }).rounds, 8);
    assert.match(
      errorsOf({ ...rounds, rpr: { iterations: [14] } })[0] ?? '',
      /rpr\.iterations: got \[14\], expected at most 176 batches .*these settings make 179/,
    );
  });

  it('is not anything but an object', () => {
    for (const input of [[], 'quick', 7]) assert.match(errorsOf(input)[0] ?? '', /^input: got .*expected a JSON object/);
  });

  it('is told about lists, integers and texts in words', () => {
    assert.deepEqual(errorsOf({ rsr: { learningRate: [] }, rollout: { chunkSize: 1.5 }, basePolicy: '', reward: { sprCap: 1 } }), [
      'basePolicy: got "", expected a text that is not empty',
      'rollout.chunkSize: got 1.5, expected a whole number of at least 1',
      'rsr.learningRate: got [], expected a non-empty list, each entry a number above 0',
      'reward.sprCap: got 1, expected a number below 1',
    ]);
  });
});

it('a per-round list repeats its last entry', () => {
  assert.deepEqual(
    [1, 2, 3].map((round) => inRound(['a', 'b'], round)),
    ['a', 'b', 'b'],
  );
});
