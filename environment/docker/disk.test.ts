/** A sandbox that fills the disk, and limits on what one may write. */
import assert from 'node:assert/strict';
import { after, describe, it } from 'node:test';
import Docker from 'dockerode';
import { backends, countContainers, fixture, testRunKey } from '../testing.ts';
import { DiskGate, DiskGuard } from './disk.ts';
import { DockerProvider } from './provider.ts';

const [, backend] = await backends();
const docker = new Docker();
const { environment, ...rest } = await fixture('sort-names');
const bare = { ...rest, environment: { ...environment, run: [] } };

describe('the disk', { skip: backend?.skip ?? false }, () => {
  const warnings: string[] = [];
  const logger = { info: () => undefined, warn: (_: object, message: string) => warnings.push(message) };
  const provider = new DockerProvider({ docker, logger });
  after(async () => {
    await provider.close();
    assert.equal(await countContainers(testRunKey), 0, 'containers left behind');
  });
  const start = (episodeId: string, task = bare) => provider.start(task, { runKey: testRunKey, episodeId, purpose: 'rollout' });

  it('is kept from running full by ending the sandbox that wrote most (failure 20)', async () => {
    const [innocent, culprit] = [await start('innocent'), await start('culprit')];
    const guard = new DiskGuard(docker, new DiskGate(docker, 2 ** 60), {
      label: `terminal-rsi.run=${testRunKey}`,
      logger,
      everyMs: 50,
      leastBytes: 1_000_000,
    });
    const ends = [guard.watch(), guard.watch()];
    try {
      await culprit.exec('head -c 2000000 /dev/urandom > /tmp/fill; sleep 30', { timeoutSec: 60 }).catch(() => undefined);
      await assert.rejects(culprit.exec('true', { timeoutSec: 10 }));
      assert.equal((await innocent.exec('echo on', { timeoutSec: 10 })).stdout, 'on\n');
      assert.ok(((await culprit.readFile('/tmp/fill'))?.length ?? 0) >= 1_000_000, 'what it wrote can still be read');
      assert.deepEqual(warnings, ['killed a sandbox that was filling the disk']);
    } finally {
      for (const end of ends) end();
      await Promise.all([innocent.close(), culprit.close()]);
      warnings.length = 0;
    }
  });

  it('has a limit per sandbox where the engine can, and says once where it cannot', async () => {
    const limited = { ...bare, environment: { ...bare.environment, storageMb: 512 } };
    for (const episodeId of ['first', 'second']) await (await start(episodeId, limited)).close();
    assert.ok(warnings.length < 2 && warnings.every((text) => /storage_mb is not enforced/.test(text)), warnings.join('\n'));
  });
});
