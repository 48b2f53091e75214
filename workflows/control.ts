/**
 * Pausing, and starting children. A pause holds a workflow before its next activity or child, and is handed down to the
 * children that are running; what has already started is finished, so that nothing is thrown away.
 */
import { condition, getExternalWorkflowHandle, isCancellation, log, setHandler, startChild } from '@temporalio/workflow';
import type { ChildWorkflowHandle, ChildWorkflowOptions, Workflow, WorkflowResultType } from '@temporalio/workflow';
import type { ProgressSignal } from './contract.ts';
import { pauseRun, progressSignal, resumeRun } from './messages.ts';

export class PauseGate {
  #paused: boolean;
  readonly #children = new Set<ChildWorkflowHandle<Workflow>>();
  readonly #changed: () => void;

  /** `changed` is called after each pause and resume. */
  constructor(paused = false, changed: () => void = () => undefined) {
    this.#paused = paused;
    this.#changed = changed;
    setHandler(pauseRun, () => this.set(true), { description: 'Hold before the next chunk or training activity.' });
    setHandler(resumeRun, () => this.set(false), { description: 'Go on after a pause.' });
  }

  get paused(): boolean {
    return this.#paused;
  }

  async set(paused: boolean): Promise<void> {
    if (this.#paused === paused) return;
    this.#paused = paused;
    this.#changed();
    await Promise.all([...this.#children].map((child) => tell(child, paused)));
  }

  /** Returns when the run is not paused. Call it before every activity. */
  async open(): Promise<void> {
    await condition(() => !this.#paused);
  }

  /** Starts a child when the run is not paused, keeps it informed of pauses, and returns its result. */
  async run<F extends Workflow>(child: F, options: ChildWorkflowOptions & { args: Parameters<F> }): Promise<WorkflowResultType<F>> {
    await this.open();
    // startChild's conditional argument types cannot be shown to hold for a type parameter: they are checked at `options` above.
    const start = startChild as unknown as (child: F, options: ChildWorkflowOptions) => Promise<ChildWorkflowHandle<F>>;
    // Only a reset leaves an open child of that name behind: one of the execution that was reset, which nobody waits for any more.
    const handle = await start(child, { ...options, workflowIdReusePolicy: 'TERMINATE_IF_RUNNING' });
    const listed = handle as unknown as ChildWorkflowHandle<Workflow>;
    this.#children.add(listed);
    try {
      // A pause may have come between the start command and its answer, when the child was not listed yet.
      if (this.#paused) await tell(listed, true);
      return await handle.result();
    } finally {
      this.#children.delete(listed);
    }
  }
}

/** The child may have ended in the meantime: then there is nothing to tell. */
async function tell(child: ChildWorkflowHandle<Workflow>, paused: boolean): Promise<void> {
  try {
    await child.signal(paused ? pauseRun : resumeRun);
  } catch (error) {
    if (isCancellation(error)) throw error;
    log.info('a child that has ended was not told of the pause', { child: child.workflowId });
  }
}

/** Reports to the training run. It may be gone (terminated by a person): the child then goes on until it is told otherwise. */
export async function reportProgress(root: string, progress: ProgressSignal): Promise<void> {
  try {
    await getExternalWorkflowHandle(root).signal(progressSignal, progress);
  } catch (error) {
    if (isCancellation(error)) throw error;
    log.warn('the training run did not take a progress signal', { root });
  }
}
