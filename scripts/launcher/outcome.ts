/** How a workflow that a command follows has ended, whatever restarts or is reset meanwhile. */
import { setTimeout as sleep } from 'node:timers/promises';
import { WorkflowFailedError, type WorkflowHandle } from '@temporalio/client';

/** `causes`: messages of the failure, the outermost first. */
export type WorkflowOutcome<T> =
  { readonly ok: true; readonly result: T } | { readonly ok: false; readonly causes: readonly [string, ...string[]] };

/** Between the end of an execution and the reset that takes it up (launcher/resume.ts). */
const RESET_PATIENCE_MS = 2_000;

/** Waits for the end. A server that does not answer is asked again; a workflow that it does not know has ended. */
export async function workflowOutcome<T>(handle: WorkflowHandle): Promise<WorkflowOutcome<T>> {
  for (;;) {
    try {
      return { ok: true, result: (await handle.result()) as T };
    } catch (error) {
      if (error instanceof WorkflowFailedError) {
        // Someone reset the run: another execution goes on with it.
        await sleep(RESET_PATIENCE_MS);
        if (await isOpen(handle)) continue;
        const causes: string[] = [];
        for (let cause: unknown = error.cause; cause instanceof Error; cause = cause.cause) causes.push(cause.message);
        const [first = error.message, ...rest] = causes;
        return { ok: false, causes: [first, ...rest] };
      }
      // The server may be restarting under us; a workflow that does not exist is the only answer that cannot change.
      if (error instanceof Error && error.name === 'WorkflowNotFoundError') return { ok: false, causes: [error.message] };
      await sleep(1000);
    }
  }
}

async function isOpen(handle: WorkflowHandle): Promise<boolean> {
  return await handle.describe().then(
    ({ status }) => status.name === 'RUNNING',
    () => false,
  );
}
