/**
 * What activities count for Prometheus (docs/observability.md lists every name). Nothing is counted until a worker gives a
 * meter, and labels have few values each: never a run, task or episode.
 *
 * Things are counted when they are finished, not when their activity ends: an attempt that is lost has still done them, and the
 * next one takes them from its journal without counting them again.
 */
import { noopMetricMeter } from '@temporalio/common';
import type { MetricCounter, MetricMeter } from '@temporalio/common';
import type { RewriteOutcome } from '../environment/rewriter.ts';
import type { EpisodeRecord, Verdict } from '../environment/types.ts';
import { EVALUATION_PURPOSE } from '../workflows/contract.ts';
import type { BatchKey } from '../workflows/contract.ts';

interface Instruments {
  readonly episodes: MetricCounter;
  readonly agentTokens: MetricCounter;
  readonly verdicts: MetricCounter;
  readonly rewrites: MetricCounter;
  readonly executions: MetricCounter;
  readonly steps: MetricCounter;
  readonly artifactBytes: MetricCounter;
}

function create(meter: MetricMeter): Instruments {
  const counter = (name: string, help: string, unit = ''): MetricCounter => meter.createCounter(`terminal_rsi_${name}`, unit, help);
  return {
    episodes: counter('episodes', 'Episodes rolled out to their end'),
    agentTokens: counter('agent_tokens', 'Tokens that agents wrote in finished episodes'),
    verdicts: counter('verdicts', 'Verdicts on episodes'),
    rewrites: counter('rewrites', 'Successes that were kept or dropped by the rewriter'),
    executions: counter('rewrite_executions', 'Fresh executions spent on minimising and re-running'),
    steps: counter('training_steps', 'Optimizer steps'),
    artifactBytes: counter('artifact_written_bytes', 'Bytes of new artifacts written to the store', 'bytes'),
  };
}

let instruments = create(noopMetricMeter);

/** Once per process, before any activity runs. */
export function countWith(meter: MetricMeter): void {
  instruments = create(meter);
}

export function countEpisode(key: BatchKey, { harness, stopReason, agentTokens }: EpisodeRecord): void {
  const place = labels(key);
  instruments.episodes.add(1, { ...place, harness, stop_reason: stopReason });
  instruments.agentTokens.add(agentTokens, { ...place, harness });
}
export function countVerdict(key: BatchKey, { outcome }: Verdict): void {
  instruments.verdicts.add(1, { ...labels(key), outcome });
}
export function countRewrites({ kept, executions, dropped }: RewriteOutcome['counts']): void {
  instruments.rewrites.add(kept, { result: 'kept', rule: '' });
  for (const [rule, count] of Object.entries(dropped)) instruments.rewrites.add(count, { result: 'dropped', rule });
  instruments.executions.add(executions);
}
export function countStep({ stage }: BatchKey, activity: string): void {
  instruments.steps.add(1, { stage_kind: stageKind(stage), activity });
}
/** `bytes` that were not in the store before. */
export function countArtifact(kind: string, bytes: number): void {
  instruments.artifactBytes.add(bytes, { kind });
}

function labels({ stage, purpose }: BatchKey): { stage_kind: string; purpose: string } {
  return { stage_kind: stageKind(stage), purpose: purpose.startsWith(EVALUATION_PURPOSE) ? 'evaluation' : 'training' };
}
/** `RSR-1` → `rsr` */
function stageKind(stage: string): string {
  const kind = stage.replace(/-\d+$/, '').toLowerCase();
  return ['base', 'rsr', 'rpr'].includes(kind) ? kind : 'other';
}
