/** The gate on real embedded sandboxes: what is accepted, and why the rest is not. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { GateTask } from '../../records/gate.ts';
import { EmbeddedProvider } from '../embedded/provider.ts';
import { fixture } from '../testing.ts';
import type { FileTree, Task } from '../types.ts';
import { checkTask } from './check.ts';
import type { CheckOptions } from './check.ts';

const task = await fixture('sort-names');
const check = (of: Task, changes: Partial<CheckOptions> = {}): Promise<GateTask> =>
  checkTask({ task: of, source: 'fixtures', provider: new EmbeddedProvider(), runKey: 'check-test', repeats: 2, ...changes });
const file = (text: string): FileTree extends Map<string, infer E> ? E : never => ({ data: Buffer.from(text), mode: 0o755 });
const withTest = (script: string, changes: Partial<Task> = {}): Task => ({
  ...task,
  tests: new Map([['test.sh', file(`#!/bin/bash\n${script}\n`)]]),
  ...changes,
});

describe('checkTask', () => {
  it('accepts a task that only the reference solution solves, with the checks that show it', async () => {
    const found = await check(task);
    assert.deepEqual([found.accepted, found.trainable, found.reasons, found.flaky, found.hackedBy], [true, true, [], false, []]);
    assert.ok(found.validChecks.length > 0);
    assert.deepEqual(
      found.verdicts.nop.map(({ outcome }) => outcome),
      ['failed', 'failed'],
    );
    assert.deepEqual(
      found.verdicts.oracle.map(({ outcome }) => outcome),
      ['passed', 'passed'],
    );
  });

  it('rejects a task whose tests write no reward, and says what they said (failure 11)', async () => {
    const found = await check(withTest('echo looked around; exit 3'));
    assert.equal(found.accepted, false);
    assert.match(
      found.reasons[0] ?? '',
      /^doing nothing: no-verdict \(RewardFileNotFoundError: .*end of their output: looked around\); expected to fail$/,
    );
  });

  it('rejects a task that a trick solves: its tests trust a script that the agent may change (failure 13)', async () => {
    const environment = {
      ...task.environment,
      files: new Map([...task.environment.files, ['app/judge.sh', file('#!/bin/bash\ngrep -q apple sorted.txt\n')]]),
    };
    const trusting = withTest('bash /app/judge.sh && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt', {
      environment,
    });
    const found = await check(trusting);
    assert.deepEqual([found.accepted, found.hackedBy], [false, ['gutted-scripts']]);
    assert.match(found.reasons.join(), /hackable: gutted-scripts earned more than doing nothing/);
    const known = await check(withTest('[ -f /srv/ok ] || grep -q apple sorted.txt; echo $((! $?)) > /logs/verifier/reward.txt'), {
      probes: [{ name: 'plants', commands: ['mkdir -p /srv; touch /srv/ok'] }],
    });
    assert.deepEqual(
      [known.accepted, known.trainable, known.hackedBy],
      [true, true, ['plants']],
      'not in a fresh sandbox, as training has it',
    );
    assert.match(known.notes.join(), /hackable where it is verified in the agent's sandbox \(plants\); use it with --verifier separate/);
    const unprobed = await check(trusting, { probes: [] });
    assert.equal(unprobed.accepted, true, 'it passes where nobody looks');
  });

  it('rejects a task that is judged differently from time to time', async () => {
    let runs = 0;
    const provider = new (class extends EmbeddedProvider {
      override start(of: Task, ...rest: [Parameters<EmbeddedProvider['start']>[1]]): ReturnType<EmbeddedProvider['start']> {
        const luck = runs++ % 2;
        return super.start(
          { ...of, environment: { ...of.environment, files: new Map([...of.environment.files, ['luck', file(String(luck))]]) } },
          ...rest,
        );
      }
    })();
    const found = await check(
      withTest('[ -f sorted.txt ] && [ "$(cat /luck)" = 1 ] && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt'),
      { provider },
    );
    assert.deepEqual([found.accepted, found.flaky], [false, true]);
    assert.match(found.reasons.join('\n'), /flaky: the reference solution was judged differently in 2 repeats/);
  });

  it('rejects a task that is solved already, and one whose solution fails', async () => {
    const solved = await check(withTest('echo 1 > /logs/verifier/reward.txt'));
    assert.match(solved.reasons.join(), /doing nothing: passed; expected to fail/);
    const unsolved = await check(withTest('echo 0 > /logs/verifier/reward.txt'));
    assert.match(unsolved.reasons.join(), /the reference solution: failed: reward; expected to pass/);
  });

  it('keeps a task out of training that only the sandbox of the agent can judge', async () => {
    const outside = withTest('[ -f /srv/made ] && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt', {
      solution: new Map([['solve.sh', file('mkdir -p /srv && touch /srv/made')]]),
    });
    const found = await check(outside);
    assert.deepEqual([found.accepted, found.trainable], [true, false]);
    assert.match(found.reasons.join(), /training verifies in a fresh sandbox .* there the reference solution: failed/);
  });
});
