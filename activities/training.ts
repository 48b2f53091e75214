/**
 * What the three training activities share: wait for the trainer, heartbeat its real progress, notice a hang, and turn
 * the outputs into artifacts.
 *
 * Invariants:
 *  I1 The checkpoint directory is the same for all attempts; outputs go to a directory of their own per attempt.
 *  I2 On cancellation the loop stops at the next step with its checkpoint on disk, before the activity ends.
 *  I3 The result is on disk before the checkpoints go: an attempt whose report was lost is answered from there, not trained again.
 *  I4 Without progress for `stallSeconds` the attempt fails and the trainer is restarted; the next attempt resumes.
 */
import { activityInfo, cancellationSignal } from '@temporalio/activity';
import { rm } from 'node:fs/promises';
import path from 'node:path';
import { InfrastructureError } from '../environment/errors.ts';
import type { AdamSettings, TrainingContext, TrainingProgress } from '../policy/types.ts';
import type { BatchKey } from '../workflows/contract.ts';
import type { GpuDependencies } from './dependencies.ts';
import { startHeartbeat } from './heartbeat.ts';
import { Journal } from './journal.ts';
import { countStep } from './metrics.ts';

const RESULT = 'result';

/** Adam as in the published PPO recipes; the learning rate alone is a setting of the stage. */
export function adam(learningRate: number): AdamSettings {
  return { learningRate, beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weightDecay: 0, maxGradientNorm: 1 };
}

/** Runs one training loop, whose result depends on `input` alone. `output(name)` gives a directory that does not exist yet. */
export async function train<T>(
  deps: GpuDependencies,
  input: { readonly key: BatchKey },
  loop: (context: TrainingContext, output: (name: string) => string) => Promise<T>,
): Promise<T> {
  const { key } = input;
  const home = path.join(deps.data, 'runs', key.runKey, 'checkpoints', key.stage, key.purpose);
  const finished = await Journal.open<T>(path.join(home, 'result.jsonl'), input);
  const outputs = path.join(home, `outputs-${activityInfo().attempt}`);
  const stalled = new AbortController();
  const signal = AbortSignal.any([cancellationSignal(), stalled.signal]);
  let last: Partial<TrainingProgress> = {};
  // Not Date.now: a clock that is set would look like a hang.
  let lastAt = performance.now();
  const beat = startHeartbeat(() => last);
  const watch = setInterval(() => {
    const seconds = (performance.now() - lastAt) / 1000;
    if (seconds < deps.stallSeconds || stalled.signal.aborted) return;
    const why = `trainer made no progress for ${Math.round(seconds)} s (limit ${deps.stallSeconds} s) after step ${last.step ?? 0}`;
    deps.trainer.restart(why);
    stalled.abort(new InfrastructureError(why));
  }, 1_000);
  try {
    const known = finished.get(RESULT);
    if (known !== undefined) return known;
    await deps.trainer.ready(undefined, signal);
    lastAt = performance.now();
    await rm(outputs, { recursive: true, force: true });
    const context: TrainingContext = {
      trainer: deps.client,
      checkpointDirectory: path.join(home, 'steps'),
      signal,
      progress(progress) {
        last = progress;
        lastAt = performance.now();
        countStep(key, activityInfo().activityType);
      },
    };
    const result = await loop(context, (name) => path.join(outputs, name));
    await finished.append(RESULT, result);
    await rm(context.checkpointDirectory, { recursive: true, force: true });
    await rm(outputs, { recursive: true, force: true });
    return result;
  } catch (error) {
    // The loop sees a dead connection when a hung trainer is killed: say why it was.
    throw stalled.signal.aborted ? stalled.signal.reason : error;
  } finally {
    clearInterval(watch);
    beat.stop();
    await finished.close();
  }
}
