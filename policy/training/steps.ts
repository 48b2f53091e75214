/**
 * The loop that all three training activities share: load models, resume, take optimizer steps, checkpoint, stop when
 * asked. What a step does is the stage's business (fine-tune.ts, critic-warm-up.ts, joint-ppo.ts); it keeps everything it
 * remembers in a JSON state, so that k steps, a crash, and the rest end in the same bits as all steps at once.
 */
import { readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { ModelRole, TrainerClient, TrainingContext } from '../types.ts';
import { readConfig } from '../model-config.ts';
import { refuseWhatDoesNotFit } from '../memory.ts';
import { TOKEN_BUDGET } from './batching.ts';
import { Checkpoints } from './checkpointing.ts';

/**
 * Share of the training time that checkpoints may take. A small model is saved after every step, so that a crash costs one minibatch;
 * a large one less often. When a checkpoint is written never changes a result.
 */
const CHECKPOINT_SHARE = 0.1;

/** Knobs that tests turn; they change speed and checkpoint times, never results beyond rounding. */
export interface LoopOptions {
  readonly tokenBudget?: number;
  /** Steps between checkpoints, instead of what `CHECKPOINT_SHARE` allows. */
  readonly checkpointEvery?: number;
}
/** A model that is trained: where it starts, and where it ends up. */
export interface TrainedModel {
  readonly role: ModelRole;
  readonly directory: string;
  readonly optimizer: string | undefined;
  readonly output: string;
  /** undefined: the moments are not kept after the activity. */
  readonly optimizerOutput: string | undefined;
}
export type Handles = Readonly<Partial<Record<ModelRole, string>>>;

export interface StepLoop<State> {
  readonly inputHash: string;
  readonly models: readonly TrainedModel[];
  readonly totalSteps: number;
  /** Tokens of the longest sequence: whether it fits into the memory is known before anything is loaded. */
  readonly longest: number;
  /** What is computed once, before the first step. */
  readonly begin: (handles: Handles) => Promise<State>;
  /** One optimizer step; mutates the state. `stop` ends the loop after (or instead of) this step. */
  readonly step: (index: number, state: State, handles: Handles) => Promise<{ readonly loss: number; readonly stop?: boolean }>;
  /** What a run of zero steps must still decide, e.g. stop before training. Default: go on. */
  readonly stopped?: (state: State) => boolean;
}

/**
 * Runs the loop to its end, saves the models to their outputs, and returns the last state. The checkpoints stay: only the caller
 * knows when the outputs are safe. @throws the signal's reason when asked to stop
 */
export async function runSteps<State>(context: TrainingContext, loop: StepLoop<State>, options: LoopOptions = {}): Promise<State> {
  const { trainer, signal } = context;
  const roles = loop.models.map(({ role, directory }) => ({ role, config: readConfig(directory) }));
  refuseWhatDoesNotFit(roles, loop.longest, options.tokenBudget ?? TOKEN_BUDGET);
  const checkpoints = await Checkpoints.claim(context.checkpointDirectory, loop.inputHash);
  const resume = await checkpoints.newest();
  const handles: Partial<Record<ModelRole, string>> = {};
  try {
    for (const model of loop.models) handles[model.role] = await loadOne(trainer, model, resume?.directory);
    let step = resume?.step ?? 0;
    const state =
      resume === undefined
        ? await loop.begin(handles)
        : (JSON.parse(await readFile(join(resume.directory, 'state.json'), 'utf8')) as State);
    let saved = step;
    let savedAt = performance.now();
    let costMs = 0;
    const due = (): boolean => {
      if (options.checkpointEvery !== undefined) return step - saved >= options.checkpointEvery;
      return performance.now() - savedAt >= costMs / CHECKPOINT_SHARE;
    };
    const checkpoint = async (): Promise<void> => {
      const begun = performance.now();
      await checkpoints.commit(step, async (directory) => {
        for (const { role } of loop.models) {
          await trainer.save(handles[role]!, { directory: join(directory, role), optimizer: join(directory, `${role}-optimizer`) });
        }
        await writeFile(join(directory, 'state.json'), JSON.stringify(state));
      });
      saved = step;
      savedAt = performance.now();
      costMs = savedAt - begun;
    };
    let stop = loop.stopped?.(state) ?? false;
    while (step < loop.totalSteps && !stop) {
      if (signal.aborted) {
        // A checkpoint that cannot be written costs steps; it must not hide why the loop was asked to stop.
        if (saved < step) await checkpoint().catch(() => undefined);
        throw signal.reason;
      }
      const result = await loop.step(step, state, handles);
      step += 1;
      stop = result.stop ?? false;
      context.progress({ step, totalSteps: loop.totalSteps, loss: result.loss });
      if (due()) await checkpoint();
    }
    await checkpoints.assertHeld();
    for (const model of loop.models) await saveOutput(trainer, handles[model.role]!, model);
    return state;
  } finally {
    // A trainer that is gone has nothing to release; the error that counts is already on its way.
    for (const handle of Object.values(handles)) await trainer.release(handle).catch(() => undefined);
  }
}

function loadOne(trainer: TrainerClient, model: TrainedModel, checkpoint: string | undefined): Promise<string> {
  if (checkpoint !== undefined) {
    return trainer.load({
      role: model.role,
      directory: join(checkpoint, model.role),
      optimizer: join(checkpoint, `${model.role}-optimizer`),
    });
  }
  return trainer.load({
    role: model.role,
    directory: model.directory,
    ...(model.optimizer !== undefined && { optimizer: model.optimizer }),
  });
}

async function saveOutput(trainer: TrainerClient, handle: string, model: TrainedModel): Promise<void> {
  // An earlier attempt may have saved and then died before reporting.
  await rm(model.output, { recursive: true, force: true });
  if (model.optimizerOutput !== undefined) await rm(model.optimizerOutput, { recursive: true, force: true });
  await trainer.save(handle, { directory: model.output, ...(model.optimizerOutput !== undefined && { optimizer: model.optimizerOutput }) });
}
