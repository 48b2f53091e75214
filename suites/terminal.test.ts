/**
 * The hand-written tasks, gated as a user's are: doing nothing earns nothing, the solution passes every check. In Docker on an image of its own,
 * so here are some of each kind; `npm run tasks -- check suites/terminal` shows all.
 */
import assert from 'node:assert/strict';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { scriptedAgent } from '../environment/harness/scripted-agent.ts';
import { loadTask } from '../environment/tasks/task.ts';
import { backends, noBaseImage, testRunKey } from '../environment/testing.ts';
import { runTrial } from '../environment/trial/run.ts';
import type { Trial } from '../environment/trial/types.ts';
import type { SandboxProvider } from '../environment/types.ts';

const folder = join(import.meta.dirname, 'terminal');
const ids = (await readdir(folder, { withFileTypes: true })).filter((entry) => entry.isDirectory()).map(({ name }) => name);

describe('hand-written tasks', () => {
  it('load without a warning, with a solution and tests for every step', async () => {
    for (const id of ids) {
      const warnings: string[] = [];
      const task = await loadTask(join(folder, id), { warn: (message) => warnings.push(message) });
      assert.deepEqual(warnings, [], id);
      for (const phase of task.steps ?? [task]) assert.ok(phase.solution?.has('solve.sh'), id);
      for (const phase of task.steps ?? [task]) assert.ok(phase.tests.has('test.sh') || phase.verifierEnvironment, id);
    }
    assert.ok(ids.length >= 12);
  });
});

const [, docker] = await backends();
describe('hand-written tasks in Docker', { skip: await noBaseImage() }, () => {
  let provider: SandboxProvider;
  before(() => (provider = docker?.provider() ?? assert.fail()));
  after(() => provider.close());

  const trial = async (id: string, agent: 'oracle' | 'nop'): Promise<Trial> =>
    runTrial({
      ...{ name: `${id}-${agent}`, task: await loadTask(join(folder, id)), source: 'terminal', harness: 'shell', provider },
      agent: agent === 'oracle' ? agent : scriptedAgent({ name: agent, replies: [] }),
      verifierMode: 'task',
      labels: { runKey: testRunKey, episodeId: `${id}-${agent}`, purpose: 'check' },
      limits: { maxTurns: 2, maxTokensPerTurn: 10, observationTokens: 10, commandTimeoutSec: 60 },
      ...{ sample: 0, seed: 0 },
    });

  // A service and a healthcheck, steps, a separate verifier, an agent that is not root, uvx.
  for (const id of ['drain-the-broker', 'fix-inventory-package', 'reproducible-bundle', 'serve-status', 'shared-folder', 'ship-a-release'])
    it(`${id}: the solution passes every check, doing nothing passes none of what counts`, async () => {
      const [solved, untouched] = await Promise.all([trial(id, 'oracle'), trial(id, 'nop')]);
      assert.deepEqual([solved.verdict.outcome, solved.verdict.reward], ['passed', 1], JSON.stringify(solved.verdict));
      assert.deepEqual(
        solved.verdict.checks.filter(({ passed }) => !passed),
        [],
      );
      assert.deepEqual([untouched.verdict.outcome, untouched.verdict.reward], ['failed', 0], JSON.stringify(untouched.verdict));
    });
});
