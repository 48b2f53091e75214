/** Verdicts on both sandboxes: what passes, what fails, what is no verdict, and what an agent cannot forge. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { after, describe, it } from 'node:test';
import { runCommands, runOracle } from '../harness/harness.ts';
import { backends, countContainers, fixture, testRunKey } from '../testing.ts';
import type { Task, Verdict } from '../types.ts';
import { verify } from './verifier.ts';

const [sortNames, silent, slow, custom] = (await Promise.all(
  ['sort-names', 'silent-verifier', 'slow-verifier', 'custom-reward'].map(fixture),
)) as [Task, Task, Task, Task];
const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');
const limits = { maxTurns: 20, maxTokensPerTurn: 60, observationTokens: 100, commandTimeoutSec: 20 };

for (const backend of await backends()) {
  describe(`verify with ${backend.name}`, { skip: backend.skip }, () => {
    const provider = backend.provider();
    after(async () => {
      await provider.close();
      if (backend.name === 'docker') assert.equal(await countContainers(testRunKey), 0, 'containers left behind');
    });
    let number = 0;
    const base = (task: Task) => ({ episodeId: `verify-${number++}`, suite: 'fixtures', task, provider, runKey: testRunKey });
    const judge = (task: Task, snapshot: Awaited<ReturnType<typeof runOracle>>['snapshot']): Promise<Verdict> =>
      verify({ task, snapshot, provider, labels: { runKey: testRunKey, episodeId: snapshot.episodeId, purpose: 'verify' } });
    const verdictAfter = async (task: Task, commands: string[]): Promise<Verdict> =>
      judge(
        task,
        (await runCommands({ ...base(task), harness: 'shell', sample: 0, seed: 0, limits, contextLength: 0, agent: 'replay', commands }))
          .snapshot,
      );

    it('passes the reference solution and fails doing nothing', async () => {
      assert.deepEqual(await judge(sortNames, (await runOracle(base(sortNames))).snapshot), {
        outcome: 'passed',
        checks: [
          { name: 'exists', passed: true },
          { name: 'equal', passed: true },
        ],
        reward: 1,
        source: { file: 'reward.txt', sha256: sha256('1\n') },
      });
      assert.equal((await verdictAfter(sortNames, [])).outcome, 'failed');
    });

    it('gives partial progress check by check', async () => {
      const { outcome, checks } = await verdictAfter(sortNames, ['echo wrong > sorted.txt']);
      assert.deepEqual([outcome, checks.map((check) => check.passed)], ['failed', [true, false]]);
    });

    it('is not impressed by a forged reward, planted tests or processes left running', async () => {
      const { outcome } = await verdictAfter(sortNames, [
        'mkdir -p /logs/verifier /tests; echo 1 > /logs/verifier/reward.txt; echo \'{"reward": 1}\' > /logs/verifier/reward.json',
        'printf "#!/bin/bash\\necho 1 > /logs/verifier/reward.txt\\n" > /tests/test.sh; echo wrong > /tests/expected.txt; echo wrong > sorted.txt',
        ...(backend.name === 'docker' ? ['(while sleep 0.1; do echo 1 > /logs/verifier/reward.txt; done) > /dev/null 2>&1 &'] : []),
      ]);
      assert.equal(outcome, 'failed');
    });

    it('judges the workdir as the agent left it: removed files stay removed, empty directories exist', async () => {
      const { snapshot } = await runCommands({
        ...base(custom),
        harness: 'shell',
        sample: 0,
        seed: 0,
        limits,
        contextLength: 0,
        agent: 'replay',
        commands: ['mkdir -p "a b/c"; echo x > .hidden'],
      });
      const task: Task = {
        ...custom,
        environment: { ...custom.environment, files: new Map([['app/old', { data: Buffer.from('o'), mode: 0o644 }]]) },
        tests: new Map([
          [
            'test.sh',
            {
              data: Buffer.from('#!/bin/bash\n[ ! -e old ] && [ -d "a b/c" ] && [ -f .hidden ] && echo 1 > /logs/verifier/reward.txt\n'),
              mode: 0o644,
            },
          ],
        ]),
      };
      assert.equal((await judge(task, snapshot)).outcome, 'passed');
    });

    it('has no verdict, rather than a 0, when the verifier fails', async () => {
      const error = async (task: Task, commands: string[]): Promise<string | undefined> => {
        const verdict = await verdictAfter(task, commands);
        assert.deepEqual([verdict.outcome, verdict.checks, verdict.reward], ['no-verdict', [], undefined]);
        return verdict.error?.type;
      };
      assert.equal(await error(silent, []), 'RewardFileNotFoundError');
      assert.equal(await error(slow, []), 'VerifierTimeoutError');
      assert.equal(await error(custom, ['touch reward.txt']), 'RewardFileEmptyError');
      assert.equal(await error(custom, ['echo nan > reward.txt']), 'VerifierOutputParseError');
      assert.equal(await error(custom, ['echo 1 > reward.txt; echo \'{"status": "pass"}\' > reward.json']), 'VerifierOutputParseError');
    });

    it('reads reward.json before reward.txt and gives the verifier its variables', async () => {
      const verdict = await verdictAfter(custom, ['echo 0 > reward.txt; echo \'{"speed": 1, "size": 0.5}\' > reward.json']);
      assert.deepEqual(verdict, {
        outcome: 'failed',
        checks: [
          { name: 'speed', passed: true },
          { name: 'size', passed: false },
        ],
        reward: 0.5,
        rewards: { speed: 1, size: 0.5 },
        source: { file: 'reward.json', sha256: sha256('{"speed": 1, "size": 0.5}\n') },
      });
      assert.equal((await verdictAfter(custom, ['touch want-env'])).outcome, 'passed');
    });
  });
}
