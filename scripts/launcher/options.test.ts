import assert from 'node:assert/strict';
import { it } from 'node:test';
import { UserError } from '../../environment/errors.ts';
import { parseOptions, parseResumeOptions } from './options.ts';

it('passes on only what was asked for', () => {
  assert.deepEqual(parseOptions([], false).input, {});
  assert.deepEqual(parseOptions(['--profile', 'smoke', '--seed', '7', '--sandbox', 'docker'], false).input, {
    profile: 'smoke',
    seed: 7,
    sandbox: 'docker',
  });
  assert.equal(parseOptions(['--result-file', 'r.json', '--detach'], true).resultFile, 'r.json');
});

it('sets nested fields, reading values as JSON where they are JSON', () => {
  const { input } = parseOptions(
    ['--set', 'rsr.epochs=3', '--set', 'rsr.learningRate=[0.001,1e-4]', '--set', 'basePolicy=models/mine', '--set', 'requireApproval=true'],
    false,
  );
  assert.deepEqual(input, { rsr: { epochs: 3, learningRate: [0.001, 0.0001] }, basePolicy: 'models/mine', requireApproval: true });
});

it('names the option, its value and what was expected', () => {
  const fails = (args: string[], message: RegExp): void =>
    assert.throws(
      () => parseOptions(args, false),
      (error: unknown) => error instanceof UserError && message.test(error.message),
    );
  fails(['--profile', 'fast'], /--profile is "fast"; expected one of smoke, quick, full/);
  fails(['--seed', '-1'], /--seed/);
  fails(['--seed=1.5'], /--seed is "1.5"; expected a whole number/);
  fails(['--seed', '4294967296'], /expected a whole number from 0 to 4294967295/);
  fails(['--sandbox', 'vm'], /--sandbox is "vm"; expected one of embedded, docker/);
  fails(['--set', 'rsr.epochs'], /expected PATH=VALUE/);
  fails(['--set', 'rsr=1', '--set', 'rsr.epochs=3'], /rsr is already set/);
  fails(['--profil', 'smoke'], /Unknown option '--profil'/);
  fails(['--detach'], /start-run/);
});

it('resume reads a run and what is to be done with it', () => {
  const intent = (...args: string[]): unknown => {
    const options = parseResumeOptions(['run-1', ...args]);
    return options === 'help' ? options : options.intent;
  };
  assert.deepEqual(intent(), { kind: 'go-on' });
  assert.deepEqual(intent('--from', 'rpr-1', '--by', 'Ada'), { kind: 'restart', from: 'RPR-1', by: 'Ada' });
  assert.deepEqual(intent('--from', 'Base', '--by', 'Ada'), { kind: 'restart', from: 'Base', by: 'Ada' });
  assert.deepEqual(intent('--from', 'RSR-2', '--fork', '--set', 'rpr.epochs=3', '--seed', '7'), {
    kind: 'fork',
    from: 'RSR-2',
    changes: { rpr: { epochs: 3 }, seed: 7 },
  });
  assert.equal(intent('--help'), 'help');
});

it('resume refuses a changed configuration without a fork, and says what it expected', () => {
  const cases: [string[], RegExp][] = [
    [['run-1', '--from', 'rpr-1', '--set', 'rpr.epochs=3'], /^--set: .*add --fork/],
    [['run-1', '--seed', '2'], /^--seed: .*add --fork/],
    [['run-1', '--fork'], /--fork needs --from STAGE/],
    [['run-1', '--from', 'rps-1'], /--from is "rps-1"; expected base, rsr-1/],
    [[], /expected one run, got none/],
    [['a', 'b'], /expected one run, got a b/],
    [['run-1', '--form', 'rpr-1'], /--form/],
  ];
  for (const [args, message] of cases)
    assert.throws(
      () => parseResumeOptions(args),
      (error: unknown) => error instanceof UserError && message.test(error.message),
      args.join(' '),
    );
});
