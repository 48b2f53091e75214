/** Whose failure it is when a verification does not end as it should: the machine's is thrown by its name, the tests' is no verdict. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { EmbeddedProvider } from '../embedded/provider.ts';
import { EngineLostError, InfrastructureError, SandboxDiedError } from '../errors.ts';
import { runCommands } from '../harness/harness.ts';
import { fixture } from '../testing.ts';
import type { Sandbox, SandboxProvider, Task } from '../types.ts';
import { errorPolicy } from './error-policy.ts';
import { within } from './faults.ts';
import { verifySeparate } from './separate.ts';
import { verify } from './verifier.ts';

const [sortNames, slow] = (await Promise.all(['sort-names', 'slow-verifier'].map(fixture))) as [Task, Task];
const labels = { runKey: 'test', episodeId: 'budgets', purpose: 'verify' } as const;
const solved = { episodeId: 'budgets', files: { 'sorted.txt': { data: Buffer.from('ada\n').toString('base64'), mode: 0o644 } } };

/** The embedded sandbox with some of its calls replaced. */
function broken(change: (sandbox: Sandbox) => Partial<Sandbox>): SandboxProvider {
  const real = new EmbeddedProvider();
  return {
    kind: real.kind,
    refusal: (task) => real.refusal(task),
    sweep: () => real.sweep(),
    close: () => real.close(),
    start: async (...args) => {
      const sandbox = await real.start(...args);
      const changed = change(sandbox);
      return new Proxy(sandbox, {
        get: (target, key) => {
          const value: unknown = Reflect.get(changed, key) ?? Reflect.get(target, key);
          return typeof value === 'function' ? (value.bind(target) as unknown) : value;
        },
      });
    },
  };
}
const typeOf = async (change: (sandbox: Sandbox) => Partial<Sandbox>): Promise<string> => {
  const error: unknown = await verifySeparate({ task: sortNames, snapshot: solved, provider: broken(change), labels }).then(
    ({ verdict }) => assert.fail(JSON.stringify(verdict)),
    (thrown: unknown) => thrown,
  );
  assert.ok(error instanceof InfrastructureError);
  return error.type;
};
const failing = (place: string, error: Error) => (path: string) => (path === place ? Promise.reject(error) : undefined);

describe('budgets of a verification', () => {
  it('a failure to bring the tests or to read the results is the machine’s, by Harbor’s name, and never a 0 (failure 16)', async () => {
    const fault = new InfrastructureError('the engine answers nonsense');
    const upload = (sandbox: Sandbox): Partial<Sandbox> => ({
      upload: (files, path) => failing('/tests', fault)(path) ?? sandbox.upload(files, path),
    });
    const download = (sandbox: Sandbox): Partial<Sandbox> => ({
      download: (path, limit) => failing('/logs/verifier', fault)(path) ?? sandbox.download(path, limit),
    });
    for (const [change, type] of [
      [upload, 'AddTestsDirError'],
      [download, 'DownloadVerifierDirError'],
    ] as const) {
      assert.equal(await typeOf(change), type);
      assert.deepEqual(errorPolicy(type), { retry: true, grade: false, rewardValid: false });
    }
  });

  it('a dead sandbox and a lost engine stay what they are', async () => {
    for (const error of [new SandboxDiedError('dead'), new EngineLostError('gone')]) {
      const provider = broken(() => ({ upload: (_, path) => failing('/tests', error)(path) ?? Promise.resolve() }));
      await assert.rejects(verifySeparate({ task: sortNames, snapshot: solved, provider, labels }), error);
    }
  });

  it('each part has a limit of its own, and the one that is over is named', async () => {
    const late = within(
      { seconds: 0.01, type: 'AddTestsDirError', action: 'bringing the tests' },
      undefined,
      () => new Promise(() => undefined),
    );
    await assert.rejects(late, { type: 'AddTestsDirError', message: 'bringing the tests took longer than 0.01 s' });
    const cancelled = new Error('cancelled');
    const failed = within({ seconds: 60, type: 'AddTestsDirError', action: 'x' }, AbortSignal.abort(cancelled), () =>
      Promise.reject(new Error('y')),
    );
    await assert.rejects(failed, cancelled);
  });

  it('hung tests are a verdict of their own that nobody repeats; what they said is kept (failure 15)', async () => {
    const talking = { ...slow, tests: new Map([['test.sh', { data: Buffer.from('#!/bin/bash\necho begun\nsleep 100\n'), mode: 0o644 }]]) };
    let runs = 0;
    const provider = broken((sandbox) => ({
      exec: (command, options) => {
        if (command.includes('/tests/test.sh)')) runs++;
        return sandbox.exec(command, options);
      },
    }));
    const { verdict, files } = await verifySeparate({ task: talking, snapshot: solved, provider, labels });
    assert.deepEqual([verdict.outcome, verdict.error?.type, verdict.reward], ['no-verdict', 'VerifierTimeoutError', undefined]);
    assert.equal(errorPolicy('VerifierTimeoutError').retry, false);
    assert.equal(runs, 1);
    assert.ok(files.has('test-stdout.txt'));
  });

  it('an agent that ran out of time is graded; that it did stands beside the reward (failure 19)', async () => {
    const provider = new EmbeddedProvider();
    const { record, snapshot } = await runCommands({
      episodeId: 'late',
      suite: 'fixtures',
      task: { ...sortNames, agentTimeoutSec: 5 },
      provider,
      runKey: 'test',
      harness: 'shell',
      sample: 0,
      seed: 0,
      limits: { maxTurns: 20, maxTokensPerTurn: 60, observationTokens: 100, commandTimeoutSec: 20 },
      contextLength: 0,
      agent: 'replay',
      commands: ['sort names.txt > sorted.txt', 'sleep 1000'],
    });
    const { outcome, reward } = await verify({ task: sortNames, snapshot, provider, labels });
    assert.deepEqual([record.stopReason, outcome, reward], ['agent-timeout', 'passed', 1]);
    assert.deepEqual(errorPolicy('AgentTimeoutError'), { retry: false, grade: true, rewardValid: true });
  });
});
