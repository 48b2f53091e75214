/** Harbor's documents about a job (its models JobConfig and JobResult), from the results of its trials. */
import path from 'node:path';
import { agentConfig, jobId, SCHEMA, taskConfig } from './harbor-result.ts';
import type { Json, TrialResult } from './harbor-result.ts';

export interface JobInfo {
  readonly name: string;
  /** The job's folder, absolute. */
  readonly directory: string;
  /** ISO 8601, UTC. */
  readonly startedAt: string;
  /** Absent while it runs. */
  readonly finishedAt?: string;
  readonly totalTrials: number;
  readonly concurrency: number;
  readonly retries?: number;
}

/** The job's `config.json`. */
export function jobConfig(info: JobInfo, trials: readonly TrialResult[]): Json {
  const tasks = new Map(trials.map(({ task_id: task, source }) => [task.path, taskConfig(task.path, source)]));
  const agents = new Map(
    trials.map(({ agent_info: agent }) => [evalsKey(agent, ''), agentConfig({ name: agent.name, model: agent.model_info?.name })]),
  );
  return {
    schema_version: SCHEMA,
    job_name: info.name,
    jobs_dir: path.dirname(info.directory),
    n_concurrent_trials: info.concurrency,
    agents: [...agents.values()],
    tasks: [...tasks.values()],
  };
}

/** The job's `result.json`: Harbor's counts and means. A trial without a valid reward is in no mean. */
export function jobResult(info: JobInfo, trials: readonly TrialResult[]): Json {
  const failed = trials.filter((trial) => exceptionTypes(trial).length > 0);
  const sum = (field: 'n_input_tokens' | 'n_cache_tokens' | 'n_output_tokens'): number | null => {
    const counts = trials.map(({ agent_result: result }) => result?.[field]).filter((count) => typeof count === 'number');
    return counts.length === 0 ? null : counts.reduce((total, count) => total + count, 0);
  };
  return {
    schema_version: SCHEMA,
    id: jobId(info.name),
    started_at: info.startedAt,
    updated_at:
      info.finishedAt ??
      trials
        .map((trial) => trial.finished_at)
        .sort()
        .at(-1) ??
      info.startedAt,
    finished_at: info.finishedAt ?? null,
    n_total_trials: info.totalTrials,
    stats: {
      n_completed_trials: trials.length,
      n_errored_trials: failed.length,
      n_running_trials: 0,
      n_pending_trials: Math.max(info.totalTrials - trials.length, 0),
      n_cancelled_trials: 0,
      n_retries: info.retries ?? 0,
      evals: evals(trials),
      n_input_tokens: sum('n_input_tokens'),
      n_cache_tokens: sum('n_cache_tokens'),
      n_output_tokens: sum('n_output_tokens'),
      cost_usd: null,
    },
  };
}

function evals(trials: readonly TrialResult[]): Json {
  const groups = groupBy(trials, ({ agent_info: agent, source }) => evalsKey(agent, source ?? 'adhoc'));
  return Object.fromEntries(
    [...groups].map(([key, group]) => {
      const valid = group.filter((trial) => trial.reward_valid);
      const rewards = valid.map((trial) => ({ name: trial.trial_name, rewards: trial.verifier_result?.rewards ?? {} }));
      const names = [...new Set(rewards.flatMap((one) => Object.keys(one.rewards)))];
      const mean = (name: string): number => rewards.reduce((total, one) => total + (one.rewards[name] ?? 0), 0) / rewards.length;
      const errors = group.flatMap((trial) => exceptionTypes(trial).map((type) => ({ type, name: trial.trial_name })));
      return [
        key,
        {
          n_trials: valid.length,
          n_errors: new Set(errors.map(({ name }) => name)).size,
          // Harbor's name for the mean of a single reward, whatever it is called.
          metrics:
            names.length === 0
              ? []
              : [names.length === 1 ? { mean: mean(names[0] ?? '') } : Object.fromEntries(names.map((name) => [name, mean(name)]))],
          pass_at_k: {},
          reward_stats: Object.fromEntries(
            names.map((name) => {
              const withIt = rewards.filter((one) => one.rewards[name] !== undefined);
              const byValue = groupBy(withIt, (one) => one.rewards[name] ?? 0);
              return [name, Object.fromEntries([...byValue].map(([value, ones]) => [value, ones.map((one) => one.name)]))];
            }),
          ),
          exception_stats: Object.fromEntries(
            [...groupBy(errors, ({ type }) => type)].map(([type, ones]) => [type, ones.map(({ name }) => name)]),
          ),
        },
      ];
    }),
  );
}

function exceptionTypes({ exception_info: own, step_results: steps }: TrialResult): string[] {
  const all = [own, ...(steps ?? []).map((step) => step.exception_info)];
  return [...new Set(all.flatMap((info) => (info ? [info.exception_type] : [])))].sort();
}

function evalsKey({ name, model_info: model }: TrialResult['agent_info'], dataset: string): string {
  return [name, ...(model ? [model.name] : []), dataset].join('__');
}

function groupBy<T, K>(items: readonly T[], key: (item: T) => K): Map<K, T[]> {
  const groups = new Map<K, T[]>();
  for (const item of items) {
    const group = groups.get(key(item));
    if (group) group.push(item);
    else groups.set(key(item), [item]);
  }
  return groups;
}
