/** What a stage cost and how its activities went, from the histories of its workflows. */
import type { StageResult } from '../workflows/contract.ts';
import { GPU_TASK_QUEUE } from '../workflows/contract.ts';
import { activityTraces } from './history.ts';
import type { WorkflowHistory } from './history.ts';
import type { ActivityTotals, StageRecordBody } from './ledger-schema.ts';

export function stageTotals(
  histories: readonly WorkflowHistory[],
  { counts, evaluation }: Pick<StageResult, 'counts' | 'evaluation'>,
): Pick<StageRecordBody['observed'], 'cost' | 'activities' | 'workers'> {
  const activities: Record<string, ActivityTotals> = {};
  const workers = new Set<string>();
  let gpuSeconds = 0;
  let cpuActivitySeconds = 0;
  for (const trace of histories.flatMap(activityTraces)) {
    const seconds = trace.startedAt === undefined || trace.closedAt === undefined ? 0 : (trace.closedAt - trace.startedAt) / 1000;
    if (trace.worker !== undefined) workers.add(trace.worker);
    if (trace.taskQueue === GPU_TASK_QUEUE) gpuSeconds += seconds;
    else cpuActivitySeconds += seconds;
    const total = activities[trace.type] ?? { completed: 0, attempts: 0, failed: 0, seconds: 0, waitSeconds: 0 };
    activities[trace.type] = {
      completed: total.completed + (trace.outcome === 'completed' ? 1 : 0),
      attempts: total.attempts + trace.attempts,
      failed: total.failed + (trace.outcome === 'failed' || trace.outcome === 'timed-out' ? 1 : 0),
      seconds: total.seconds + seconds,
      waitSeconds: total.waitSeconds + (trace.startedAt === undefined ? 0 : (trace.startedAt - trace.scheduledAt) / 1000),
    };
  }
  const cost = {
    ...{ gpuSeconds, cpuActivitySeconds },
    episodes: counts.episodes + evaluation.episodes,
    tokens: counts.agentTokens + evaluation.tokens,
  };
  return { cost, activities, workers: [...workers].sort() };
}
