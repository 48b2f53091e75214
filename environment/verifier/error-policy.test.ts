/** The policy table, row by row; where installed, against Harbor's own. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { errorPolicy } from './error-policy.ts';

const row = (type: string): string => {
  const { retry, grade, rewardValid } = errorPolicy(type);
  return [retry, grade, rewardValid].map((value) => (value ? 'y' : 'n')).join('');
};

describe('error policy', () => {
  it('a failing sandbox may run again and is never graded: no fake 0 (failure 16)', () => {
    for (const type of [
      'EnvironmentStartTimeoutError',
      'SandboxBuildFailedError',
      'AgentSetupTimeoutError',
      'HealthcheckError',
      'SandboxLikelyOutOfMemoryError',
      'MemoryLimitExceededError',
      'AddTestsDirError',
      'DownloadVerifierDirError',
      'InfrastructureError',
    ])
      assert.equal(row(type), 'ynn', type);
  });

  it('a test run that timed out is never run again, and no verifier’s fault has a reward (failure 15)', () => {
    for (const type of [
      'VerifierTimeoutError',
      'RewardFileNotFoundError',
      'RewardFileEmptyError',
      'VerifierOutputParseError',
      'ValidationError',
      'NoRewardError',
      'TestsTamperedError',
      'VerifierKitError',
      'BadRequestError',
    ])
      assert.equal(row(type), 'nyn', type);
  });

  it('an agent that ran out of time is graded and its reward counts (failure 19)', () => {
    for (const type of [
      'AgentTimeoutError',
      'ContextLengthExceededError',
      'OutputLengthExceededError',
      'AgentSafetyRefusalError',
      'NonZeroAgentExitCodeError',
    ])
      assert.equal(row(type), 'nyy', type);
  });

  it('a model endpoint may recover; missing rights, tasks that are wrong and cancelled trials do not; the rest is as Harbor has it', () => {
    for (const type of ['ApiRateLimitError', 'InternalServerError', 'APIConnectionError']) assert.equal(row(type), 'yyn', type);
    for (const type of ['AuthenticationError', 'CancelledError', 'TaskError']) assert.equal(row(type), 'nnn', type);
    assert.equal(row('SomethingElseError'), 'yyy');
  });
});
