/** Harbor's documents about a trial (its models TrialResult and TrialConfig), made from ours. */
import { createHash } from 'node:crypto';
import { pathToFileURL } from 'node:url';
import path from 'node:path';
import type { Trial, TrialError, TrialPhase } from '../environment/trial/types.ts';
import type { EpisodeRecord, Verdict } from '../environment/types.ts';
import { agentInfo } from './atif.ts';

export type Json = Readonly<Record<string, unknown>>;
export const SCHEMA = 1;
const PHASES = {
  environmentSetup: 'environment_setup',
  agentSetup: 'agent_setup',
  agentExecution: 'agent_execution',
  verifier: 'verifier',
} as const satisfies Record<TrialPhase, string>;

/** What we read back of a trial's result.json; the file holds more. */
export interface TrialResult {
  readonly trial_name: string;
  readonly task_name: string;
  readonly source?: string | null;
  readonly task_id: { readonly path: string };
  readonly agent_info: { readonly name: string; readonly model_info?: { readonly name: string } | null };
  readonly agent_result?: {
    readonly n_input_tokens?: number | null;
    readonly n_cache_tokens?: number | null;
    readonly n_output_tokens?: number | null;
  } | null;
  readonly verifier_result?: { readonly rewards?: Readonly<Record<string, number>> | null } | null;
  readonly exception_info?: { readonly exception_type: string } | null;
  readonly step_results?: readonly { readonly exception_info?: { readonly exception_type: string } | null }[] | null;
  readonly reward_valid: boolean;
  readonly started_at: string;
  readonly finished_at: string;
}

/** The trial's `config.json`. */
export function trialConfig(trial: Trial, jobDirectory: string): Json {
  return {
    schema_version: SCHEMA,
    task: taskConfig(trial.task.dir, trial.source),
    trial_name: trial.name,
    trials_dir: jobDirectory,
    agent: agentConfig(agentInfo(trial.record)),
    environment: environmentConfig(trial.record),
    job_id: jobId(path.basename(jobDirectory)),
  };
}

/** The trial's `result.json`. */
export function trialResult(trial: Trial, jobDirectory: string): Json {
  const { name, version, model } = agentInfo(trial.record);
  const directory = path.join(jobDirectory, trial.name);
  const { error, steps } = trial;
  const usage = totals(trial);
  return {
    schema_version: SCHEMA,
    id: uuid(`${path.basename(jobDirectory)}/${trial.name}`),
    task_name: trial.task.name ?? trial.task.id,
    trial_name: trial.name,
    trial_uri: pathToFileURL(directory).href,
    task_id: { path: trial.task.dir },
    source: trial.source,
    task_checksum: trial.task.checksum,
    config: trialConfig(trial, jobDirectory),
    agent_info: { name, version, model_info: model === undefined ? null : { name: model, provider: null } },
    agent_result: {
      ...usage,
      metadata: { stop_reason: trial.record.stopReason, harness: trial.record.harness, sandbox: trial.record.sandbox },
    },
    verifier_result: verifierResult(trial.verdict),
    verifier_environment_mode: steps ? null : trial.verifierMode,
    exception_info: error ? exceptionInfo(error, trial.period.finishedAt) : null,
    started_at: trial.period.startedAt,
    finished_at: trial.period.finishedAt,
    ...timings(trial.phases),
    step_results:
      steps?.map((step) => ({
        step_name: step.name,
        verifier_result: verifierResult(step.verdict),
        exception_info: step.error ? exceptionInfo(step.error, step.phases.verifier?.finishedAt ?? trial.period.finishedAt) : null,
        ...timings({
          ...(step.phases.agentExecution ? { agentExecution: step.phases.agentExecution } : {}),
          ...(step.phases.verifier ? { verifier: step.phases.verifier } : {}),
        }),
      })) ?? null,
    reward_valid: trial.rewardValid,
  };
}

/** Tokens of a policy are counted as of an endpoint: every turn's whole prompt. */
function totals({ usage, record, tokens }: Trial): NonNullable<TrialResult['agent_result']> {
  if (usage) return { n_input_tokens: usage.promptTokens, n_cache_tokens: usage.cachedTokens, n_output_tokens: usage.completionTokens };
  if (!tokens) return { n_input_tokens: null, n_cache_tokens: null, n_output_tokens: null };
  let input = 0;
  tokens.turnIds.forEach((turn, at) => {
    if (turn !== -1 && tokens.turnIds[at - 1] !== turn) input += at;
  });
  return { n_input_tokens: input, n_cache_tokens: null, n_output_tokens: record.agentTokens };
}

function verifierResult({ reward, rewards }: Verdict): { readonly rewards: Readonly<Record<string, number>> } | null {
  if (rewards) return { rewards };
  return reward === undefined ? null : { rewards: { reward } };
}

/** Our own policy is written with it, so that Harbor's tools count the trial as we do. */
function exceptionInfo({ type, message, policy }: TrialError, occurredAt: string) {
  return {
    exception_type: type,
    exception_message: message,
    exception_traceback: `${type}: ${message}`,
    occurred_at: occurredAt,
    policy_override: { should_retry: policy.retry, should_grade: policy.grade, has_valid_reward: policy.rewardValid },
  };
}

function timings(phases: Trial['phases']): Json {
  return Object.fromEntries(
    Object.entries(PHASES).flatMap(([ours, theirs]) => {
      const period = phases[ours as TrialPhase];
      return period ? [[theirs, { started_at: period.startedAt, finished_at: period.finishedAt }]] : [];
    }),
  );
}

export function taskConfig(directory: string, source: string | null | undefined): Json {
  return { path: directory, source: source ?? null };
}

export function agentConfig({ name, model }: { readonly name: string; readonly model?: string | undefined }): Json {
  return { name, model_name: model ?? null };
}

/** Harbor knows our own sandbox by no name. */
function environmentConfig({ sandbox }: Pick<EpisodeRecord, 'sandbox'>): Json {
  return sandbox === 'docker' ? { type: 'docker' } : { import_path: `terminal-rsi:${sandbox}` };
}

export const jobId = (name: string): string => uuid(`job/${name}`);

/** The same name gives the same id, so that writing again changes nothing. */
function uuid(name: string): string {
  const hex = createHash('sha256').update(name).digest('hex');
  return [hex.slice(0, 8), hex.slice(8, 12), `8${hex.slice(13, 16)}`, `8${hex.slice(17, 20)}`, hex.slice(20, 32)].join('-');
}
