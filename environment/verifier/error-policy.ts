/**
 * What happens after an error, by its type: whether the trial may run again, whether what the agent did is graded all the same, whether
 * the reward counts. Harbor's table, by Harbor's names, and behind it the types that only we have.
 */
import type { ErrorPolicy } from '../trial/types.ts';

const policy = (retry: boolean, grade: boolean, rewardValid: boolean): ErrorPolicy => ({ retry, grade, rewardValid });

/** What Harbor does after an error that it does not know. */
const unknown = policy(true, true, true);

const groups: readonly (readonly [ErrorPolicy, readonly string[]])[] = [
  [
    // The sandbox failed: nothing of the agent is left to grade.
    policy(true, false, false),
    [
      'EnvironmentStartTimeoutError',
      'SandboxBuildFailedError',
      'AgentSetupTimeoutError',
      'HealthcheckError',
      'SandboxLikelyOutOfMemoryError',
      'MemoryLimitExceededError',
      'SSHAccessError',
      'GKEExecStreamClosedError',
      'GKEPodNotFoundError',
      'RuntimeRequestError',
      'AddTestsDirError',
      'DownloadVerifierDirError',
      'InfrastructureError', // ours: the machine or the engine
      'InsufficientDiskSpaceError', // ours
      'NetworkPoolExhaustedError', // ours
    ],
  ],
  [
    // The model's endpoint failed for now.
    policy(true, true, false),
    [
      'ApiError',
      'ApiRateLimitError',
      'ApiInternalServerError',
      'ApiOverloadedError',
      'ApiConnectionClosedError',
      'ApiResponseStalledError',
      'UnknownApiError',
      'NetworkConnectionError',
      'ApiConnectionError',
      'ApiUsageLimitError',
      'RateLimitError',
      'InternalServerError',
      'ServiceUnavailableError',
      'APIConnectionError',
      'APIError',
      'Timeout',
    ],
  ],
  [
    // The verifier, or a request that no repetition makes right: a test run that timed out is never run again.
    policy(false, true, false),
    [
      'UnsupportedModelParametersError',
      'BadRequestError',
      'UnprocessableEntityError',
      'UnsupportedParamsError',
      'APIResponseValidationError',
      'BudgetExceededError',
      'VerifierTimeoutError',
      'RewardFileNotFoundError',
      'RewardFileEmptyError',
      'VerifierOutputParseError',
      // Unknown to Harbor's table, where a missing reward would count as a valid one: reward files without a number.
      'ValidationError',
      'NoRewardError',
      'TestsTamperedError', // ours
      'VerifierKitError', // ours
    ],
  ],
  [
    policy(false, false, false),
    [
      'AgentAuthenticationError',
      'ModelNotFoundError',
      'ApiProviderResourceNotFoundError',
      'AuthenticationError',
      'PermissionDeniedError',
      'NotFoundError',
      'ServiceOperationsUnsupportedError',
      'VercelScopeError',
      'DspyImportError',
      'MissingExtraError',
      'RegradeError',
      'CancelledError',
      'TaskError', // ours: the task is wrong or asks for what there is not
      'UserError', // ours
    ],
  ],
  [
    // The agent's own doing, as much a part of the episode as its commands.
    policy(false, true, true),
    [
      'NonZeroAgentExitCodeError',
      'AgentTimeoutError',
      'ContextWindowExceededError',
      'OutputTokenExceededError',
      'ContextLengthExceededError',
      'OutputLengthExceededError',
      'AgentSafetyRefusalError',
      'ContentPolicyViolationError',
    ],
  ],
];

const policies = new Map(groups.flatMap(([group, types]) => types.map((type) => [type, group] as const)));

/** @param type an error's class name in Harbor, or `type` of ours (errors.ts) */
export function errorPolicy(type: string): ErrorPolicy {
  return policies.get(type) ?? unknown;
}
