import assert from 'node:assert/strict';
import path from 'node:path';
import { it } from 'node:test';
import { UserError } from '../../environment/errors.ts';
import { parseEpisodes } from './episodes-options.ts';

it('gives the workflow what was asked for, with absolute paths', () => {
  const args =
    '--dataset tasks --agent replay:a.json --include a* --include b --samples 3 --max-turns 7 --max-tokens 256 --observation-tokens 300 --job-dir out --result-file r.json';
  assert.deepEqual(parseEpisodes(args.split(' ')), {
    input: {
      dataset: path.resolve('tasks'),
      agent: `replay:${path.resolve('a.json')}`,
      include: ['a*', 'b'],
      samples: 3,
      limits: { maxTurns: 7, maxTokensPerTurn: 256, observationTokens: 300 },
      jobDir: path.resolve('out'),
    },
    resultFile: 'r.json',
  });
  const agentOf = (agent: string): unknown => {
    const parsed = parseEpisodes(['--dataset', 'x', '--agent', agent]);
    return parsed === 'help' ? undefined : parsed.input.agent;
  };
  assert.equal(agentOf(`policy:${'a'.repeat(64)}`), `policy:${'a'.repeat(64)}`, 'an artifact, not a folder');
  assert.equal(agentOf('model:org/name:tag'), 'model:org/name:tag');
});

it('goes on with a job by its folder, or with the newest one', () => {
  assert.deepEqual(parseEpisodes(['--resume', 'jobs/x']), { input: {}, resume: 'jobs/x' });
  assert.deepEqual(parseEpisodes(['--resume']), { input: {}, resume: '' });
  assert.equal(parseEpisodes(['--help']), 'help');
});

it('says what is wrong with an option', () => {
  const wrong = (args: string, message: RegExp): void =>
    assert.throws(
      () => parseEpisodes(args.split(' ')),
      (error) => error instanceof UserError && message.test(error.message),
    );
  wrong('--agent nop', /--dataset is missing; expected a folder of tasks/);
  wrong('--dataset x --samples many', /--samples is "many"; expected a number/);
  wrong('--dataset x --sample 2', /Unknown option '--sample'/);
  wrong('--resume x --samples 2', /--resume: a job goes on with its own settings; got --samples beside it/);
});
