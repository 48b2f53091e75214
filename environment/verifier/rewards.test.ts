/** Reward files, as Harbor reads them and as `compat` does. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { describe, it } from 'node:test';
import type { FileTree } from '../types.ts';
import { parseCtrf } from './ctrf.ts';
import { VerifierFault } from './faults.ts';
import { parseRewardJson, parseRewardText, readRewards, verdictOf } from './rewards.ts';
import type { RewardReading } from './rewards.ts';

const logs = (files: Readonly<Record<string, string | Buffer>>): FileTree =>
  new Map(Object.entries(files).map(([path, data]) => [path, { data: Buffer.from(data as string), mode: 0o644 }]));
const read = (files: Parameters<typeof logs>[0], reading?: RewardReading): string => {
  try {
    const { values, source } = readRewards(logs(files), 'a task', reading);
    return `${source.file}: ${JSON.stringify(Object.fromEntries(values))}`;
  } catch (error) {
    assert.ok(error instanceof VerifierFault);
    return error.type;
  }
};

describe('reward files', () => {
  it('reward.txt is what Python’s float() takes, if finite', () => {
    for (const [text, value] of [
      ['1', 1],
      [' 0.5\n', 0.5],
      ['1e0', 1],
      ['1.', 1],
      ['.5', 0.5],
      ['-1', -1],
      ['1_0', 10],
    ] as const) {
      assert.equal(parseRewardText(text).get('reward'), value, text);
    }
    for (const text of ['', 'nan', 'inf', '-Infinity', '1e999', '0x1', 'one', '1 2', '1__0'])
      assert.throws(() => parseRewardText(text), /reward\.txt is/, text);
  });

  it('reward.json is an object of numbers', () => {
    assert.deepEqual(
      [...parseRewardJson('{"reward": 1, "fast": true}')],
      [
        ['reward', 1],
        ['fast', 1],
      ],
    );
    for (const text of [
      '1',
      '[1]',
      'null',
      '{"reward": "1"}',
      '{"reward": null}',
      '{"a": {"b": 1}}',
      '{',
      '{}',
      '{"reward": NaN}',
      '{"reward": 1e999}',
    ])
      assert.throws(() => parseRewardJson(text), /reward\.json/, text);
  });

  it('CTRF: skipped tests are left out, equal names told apart, broken files ignored', () => {
    const tests = [
      ['a', 'passed'],
      ['a', 'failed'],
      ['b', 'skipped'],
      ['c', 'other'],
    ].map(([name, status]) => ({ name, status }));
    assert.deepEqual(parseCtrf(JSON.stringify({ results: { tests } })), [
      { name: 'a', passed: true },
      { name: 'a #2', passed: false },
      { name: 'c', passed: false },
    ]);
    for (const text of ['', '{}', 'null', '{"results":{"tests":[{"name":1}]}}', '{"results":{"tests":[]}}'])
      assert.equal(parseCtrf(text), undefined, text);
  });

  it('reward.json comes before reward.txt, and what is malformed has Harbor’s type, whatever stands beside it (failure 14)', () => {
    for (const [json, expected] of [
      ['{"reward": 1}', 'reward.json: {"reward":1}'],
      ['{"a": true, "b": 0.5}', 'reward.json: {"a":1,"b":0.5}'],
      ['', 'RewardFileEmptyError'],
      ['{"score": 1.0, "status": "pass", "failures": []}', 'VerifierOutputParseError'],
      ['[1]', 'VerifierOutputParseError'],
      ['"1"', 'VerifierOutputParseError'],
      ['null', 'VerifierOutputParseError'],
      ['{"reward": 1', 'VerifierOutputParseError'],
      ['1', 'ValidationError'],
      ['{}', 'NoRewardError'],
    ] as const)
      assert.equal(read({ 'reward.json': json, 'reward.txt': '0' }), expected, json);
    assert.equal(read({ 'reward.txt': '0.5\n' }), 'reward.txt: {"reward":0.5}');
    assert.equal(read({ 'reward.txt': '' }), 'RewardFileEmptyError');
    assert.equal(read({ 'reward.txt': Buffer.from([0xff]) }), 'VerifierOutputParseError');
    assert.equal(read({ 'test-stdout.txt': 'ok' }), 'RewardFileNotFoundError');
  });

  it('compat takes what other readers accept, and nothing that holds no number', () => {
    for (const [json, expected] of [
      ['{"reward": 1}', 'reward.json: {"reward":1}'],
      ['1', 'reward.json: {"reward":1}'],
      ['{"score": 1.0, "status": "pass", "failures": []}', 'reward.json: {"score":1}'],
      ['', 'reward.txt: {"reward":0}'],
      ['{"status": "pass"}', 'reward.txt: {"reward":0}'],
    ] as const)
      assert.equal(read({ 'reward.json': json, 'reward.txt': '0' }, 'compat'), expected, json);
    assert.equal(read({ 'reward.json': '[1]' }, 'compat'), 'VerifierOutputParseError');
    assert.equal(read({}, 'compat'), 'RewardFileNotFoundError');
  });

  it('a verdict says which file it is from, and names rewards only where there are others than `reward`', () => {
    const sha256 = createHash('sha256').update('1').digest('hex');
    assert.deepEqual(verdictOf(readRewards(logs({ 'reward.txt': '1' }), 'a task'), undefined), {
      outcome: 'passed',
      checks: [{ name: 'reward', passed: true }],
      reward: 1,
      source: { file: 'reward.txt', sha256 },
    });
    const { reward, rewards, outcome } = verdictOf(
      readRewards(logs({ 'reward.json': '{"reward": 0.5, "speed": 3}' }), 'a task'),
      undefined,
    );
    assert.deepEqual({ reward, rewards, outcome }, { reward: 0.5, rewards: { reward: 0.5, speed: 3 }, outcome: 'failed' });
  });
});
