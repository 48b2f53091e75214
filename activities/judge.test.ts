/** When an episode has no verdict, and when the machine is at fault: with real embedded sandboxes that fail where a test says so. */
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, describe, it } from 'node:test';
import { EmbeddedProvider } from '../environment/embedded/provider.ts';
import { EngineLostError, InfrastructureError } from '../environment/errors.ts';
import { fixture } from '../environment/testing.ts';
import type { Sandbox, SandboxLabels, SandboxProvider, Task, WorkspaceSnapshot } from '../environment/types.ts';
import { Journal } from './journal.ts';
import { judge, triesInMemory } from './judge.ts';
import { startingAgain } from './lost-parts.ts';

const home = await mkdtemp(path.join(tmpdir(), 'terminal-rsi-judge-'));
after(() => rm(home, { recursive: true }));
const task = await fixture('sort-names');
const snapshot: WorkspaceSnapshot = { episodeId: 'RSR-1/rollout/x/0', files: {} };
const signal = new AbortController().signal;

/** Embedded sandboxes; `fails` decides about each that is started. */
class FailingProvider extends EmbeddedProvider implements SandboxProvider {
  readonly started: string[] = [];
  readonly #fails: (purpose: string, count: number) => Error | undefined;
  constructor(fails: (purpose: string, count: number) => Error | undefined) {
    super();
    this.#fails = fails;
  }
  override start(of: Task, labels: SandboxLabels): Promise<Sandbox> {
    this.started.push(labels.purpose);
    const error = this.#fails(labels.purpose, this.started.length);
    return error ? Promise.reject(error) : super.start(of, labels);
  }
}
const broken = new InfrastructureError('container 4711 died');

describe('judge', () => {
  it('gives the verdict of a sandbox that works', async () => {
    const provider = new EmbeddedProvider();
    assert.equal((await judge({ task, snapshot, provider, runKey: 'r', tries: triesInMemory(), signal })).outcome, 'failed');
  });

  it('records no verdict after three sandboxes that fail where one without the episode works', async () => {
    const provider = new FailingProvider((purpose) => (purpose === 'verify' ? broken : undefined));
    const verdict = await judge({ task, snapshot, provider, runKey: 'r', tries: triesInMemory(), signal });
    assert.deepEqual(provider.started, ['verify', 'check', 'verify', 'check', 'verify', 'check']);
    assert.deepEqual([verdict.outcome, verdict.error?.type], ['no-verdict', 'InfrastructureError']);
    assert.doesNotMatch(verdict.error?.message ?? '', /4711/, 'what differs between equal runs is not in a verdict');
  });

  it('does not run tests again that ran into their time limit', async () => {
    const provider = new FailingProvider(() => undefined);
    const slow = await fixture('slow-verifier');
    const verdict = await judge({ task: slow, snapshot, provider, runKey: 'r', tries: triesInMemory(), signal });
    assert.deepEqual([verdict.outcome, verdict.error?.type, provider.started], ['no-verdict', 'VerifierTimeoutError', ['verify']]);
  });

  it('a lost engine is neither a try nor checked with a control: another attempt is what it needs', async () => {
    const lost = new EngineLostError('engine restarts');
    const provider = new FailingProvider((purpose) => (purpose === 'verify' ? lost : undefined));
    const tries = triesInMemory();
    await assert.rejects(judge({ task, snapshot, provider, runKey: 'r', tries, signal }), lost);
    assert.deepEqual([provider.started, tries.get(`${snapshot.episodeId}#1`)], [['verify'], undefined]);
  });

  it('takes an outage for no verdict, however often it is tried', async () => {
    const provider = new FailingProvider(() => broken);
    const tries = triesInMemory();
    for (let attempt = 0; attempt < 10; attempt++)
      await assert.rejects(judge({ task, snapshot, provider, runKey: 'r', tries, signal }), broken);
    assert.equal(tries.get(`${snapshot.episodeId}#1`), undefined);
  });

  it('counts tries over the attempts of the activity, and those of this episode only', async () => {
    const file = path.join(home, 'tries.jsonl');
    const attempt = async (work: (tries: Journal<string>) => Promise<unknown>): Promise<unknown> => {
      const tries = await Journal.open<string>(file, 'inputs');
      return await work(tries).finally(() => tries.close());
    };
    // Each attempt dies in the second sandbox for the episode: one try is counted each time.
    for (let count = 1; count <= 2; count++) {
      const killed = new FailingProvider((purpose, started) =>
        started > 2 ? new Error('killed') : purpose === 'verify' ? broken : undefined,
      );
      await assert.rejects(
        attempt((tries) => judge({ task, snapshot, provider: killed, runKey: 'r', tries, signal })),
        /killed/,
      );
    }
    const provider = new FailingProvider((purpose) => (purpose === 'verify' ? broken : undefined));
    await attempt(async (tries) => {
      assert.equal((await judge({ task, snapshot, provider, runKey: 'r', tries, signal })).outcome, 'no-verdict');
      assert.deepEqual(provider.started, ['verify', 'check'], 'the third try is the last');
      const other = { ...snapshot, episodeId: 'another' };
      const once = new FailingProvider((_purpose, started) => (started === 1 ? broken : undefined));
      assert.equal((await judge({ task, snapshot: other, provider: once, runKey: 'r', tries, signal })).outcome, 'failed');
    });
  });

  it('throws what the safety net of a sandbox caught: time is no verdict', async () => {
    const slow = { ...task, tests: new Map([['test.sh', { data: Buffer.from('while :; do :; done\n'), mode: 0o755 }]]) };
    const provider = new EmbeddedProvider({ safetyMs: 20 });
    await assert.rejects(judge({ task: slow, snapshot, provider, runKey: 'r', tries: triesInMemory(), signal }), InfrastructureError);
  });
});

describe('startingAgain', () => {
  const lost = new EngineLostError('engine restarts');
  it('starts again what lost a part, and gives up in the end', async () => {
    const restarts: number[] = [];
    const result = await startingAgain(
      signal,
      (restart) => (restarts.push(restart), restart < 3 ? Promise.reject(lost) : Promise.resolve('done')),
      {
        firstPauseMs: 0,
      },
    );
    assert.deepEqual([result, restarts], ['done', [0, 1, 2, 3]]);
    await assert.rejects(
      startingAgain(signal, () => Promise.reject(lost), { firstPauseMs: 0 }),
      lost,
    );
  });
  it('throws other errors at once, and the reason of a cancellation', async () => {
    let calls = 0;
    const fail = (): Promise<never> => (calls++, Promise.reject(broken));
    await assert.rejects(startingAgain(signal, fail), broken);
    assert.equal(calls, 1);
    const reason = new Error('cancelled');
    await assert.rejects(
      startingAgain(AbortSignal.abort(reason), () => Promise.reject(lost)),
      reason,
    );
  });
});
