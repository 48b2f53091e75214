/**
 * One episode's verdict. What fails is either the episode's doing (it may leave behind what no verifier or sandbox survives) or the
 * machine's, and only the former may become its `no-verdict`, which training never sees.
 *
 * Invariants:
 *  I1 Only tries of this very episode count, and they are on disk: killed workers and the failures of other episodes do not
 *     change when it is given up.
 *  I2 A sandbox that fails counts only when right after it a sandbox of the same task without the episode's files works:
 *     an outage of the engine is never a verdict.
 */
import { requireWorkingSandbox } from '../environment/control.ts';
import { InfrastructureError } from '../environment/errors.ts';
import type { SandboxLabels, SandboxProvider, Task, Verdict, WorkspaceSnapshot } from '../environment/types.ts';
import { verify } from '../environment/verifier/verifier.ts';
import type { Journal } from './journal.ts';

/** So often no verdict, or no sandbox, and the episode has none. */
const TRIES = 3;

/** Tries without a verdict, in a journal by `<episode>#<number>`; in memory where nothing else is kept of an episode. */
export type Tries = Pick<Journal<string>, 'get' | 'append'>;
export function triesInMemory(): Tries {
  const tries = new Map<string, string>();
  return { get: (id) => tries.get(id), append: (id, why) => Promise.resolve(void tries.set(id, why)) };
}

export interface JudgeOptions {
  readonly task: Task;
  readonly snapshot: WorkspaceSnapshot;
  readonly provider: SandboxProvider;
  readonly runKey: string;
  readonly workflow?: SandboxLabels['workflow'];
  readonly tries: Tries;
  readonly signal: AbortSignal;
}

/** @throws InfrastructureError when the machine is at fault, TaskError when the sandbox cannot run the task, or the signal's reason */
export async function judge(options: JudgeOptions): Promise<Verdict> {
  const { task, snapshot, provider, runKey, workflow, tries, signal } = options;
  const labels: SandboxLabels = { runKey, episodeId: snapshot.episodeId, purpose: 'verify', ...(workflow ? { workflow } : {}) };
  for (;;) {
    try {
      const verdict = await verify({ task, snapshot, provider, labels, signal });
      // Tests that hang will hang again, and cost their whole limit each time.
      if (verdict.outcome !== 'no-verdict' || verdict.error?.type === 'VerifierTimeoutError') return verdict;
      if (await isLast(tries, snapshot.episodeId, `${verdict.error?.type}: ${verdict.error?.message}`)) return verdict;
    } catch (error) {
      signal.throwIfAborted();
      if (!(error instanceof InfrastructureError) || isStuck(error)) throw error;
      await requireWorkingSandbox({ task, provider, labels, signal }, error);
      if (await isLast(tries, snapshot.episodeId, error.message)) {
        // Without the error's own words: they name containers, and equal runs must have equal verdicts. The journal has them.
        const message = `with this workspace the sandbox failed ${TRIES} times; without it, it works`;
        return { outcome: 'no-verdict', checks: [], error: { type: 'InfrastructureError', message } };
      }
    }
  }
}

/** Counts a try; whether it was the last one. */
async function isLast(tries: Tries, episodeId: string, why: string): Promise<boolean> {
  let count = 1;
  while (tries.get(`${episodeId}#${count}`) !== undefined) count++;
  await tries.append(`${episodeId}#${count}`, why);
  return count >= TRIES;
}

/** The embedded sandbox's safety net (environment/embedded/provider.ts): time, and never an episode's doing. */
function isStuck(error: InfrastructureError): boolean {
  return (error as { code?: unknown }).code === 'stuck';
}
