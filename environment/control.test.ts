/** Whose doing a dead sandbox is, with real embedded sandboxes that fail where a test says so. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { diedByAgent } from './control.ts';
import { EmbeddedProvider } from './embedded/provider.ts';
import { EngineLostError, InfrastructureError, SandboxDiedError, TaskError } from './errors.ts';
import { fixture } from './testing.ts';
import type { SandboxLabels } from './types.ts';

const task = await fixture('sort-names');
const labels: SandboxLabels = { runKey: 'r', episodeId: 'e', purpose: 'rollout' };

class WatchedProvider extends EmbeddedProvider {
  readonly started: string[] = [];
  readonly fails: Error | undefined;
  constructor(fails?: Error) {
    super();
    this.fails = fails;
  }
  override start(...args: Parameters<EmbeddedProvider['start']>): ReturnType<EmbeddedProvider['start']> {
    this.started.push(`${args[1].purpose} ${args[1].episodeId}`);
    return this.fails ? Promise.reject(this.fails) : super.start(...args);
  }
}

describe('diedByAgent', () => {
  for (const [what, error] of [
    ['died', new SandboxDiedError('container 4711 is gone', { exitCode: 137 })],
    ['ran out of memory', new SandboxDiedError('container 4711: out of memory', { exitCode: 137, outOfMemory: true })],
  ] as const) {
    it(`a sandbox that ${what} is the agent’s doing where a fresh one works`, async () => {
      const provider = new WatchedProvider();
      assert.equal(await diedByAgent(error, { task, provider, labels }), true);
      assert.deepEqual(provider.started, ['check e/control']);
    });

    it(`a sandbox that ${what} is the machine’s doing where no fresh one starts`, async () => {
      const broken = new InfrastructureError('no space left on device');
      await assert.rejects(diedByAgent(error, { task, provider: new WatchedProvider(broken), labels }), broken);
    });
  }

  it('a lost engine or any other error is never the agent’s doing, and needs no control', async () => {
    const provider = new WatchedProvider();
    for (const error of [new EngineLostError('gone'), new InfrastructureError('start failed'), new TaskError('wrong'), new Error('bug')])
      assert.equal(await diedByAgent(error, { task, provider, labels }), false);
    assert.deepEqual(provider.started, []);
  });
});
