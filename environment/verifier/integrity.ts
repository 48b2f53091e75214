/**
 * That the tests which ran are the task's: /tests is read from outside the sandbox's processes, right before the run (nothing else may
 * lie there) and after it (what was uploaded is unchanged).
 */
import type { FileTree, Sandbox, Task } from '../types.ts';
import { VerifierFault } from './faults.ts';

/** What one download holds; of larger tests the rest cannot be compared. */
const comparableBytes = 60 * 1024 * 1024;

/** @throws VerifierFault TestsTamperedError unless /tests holds the task's tests and nothing else, and /logs/verifier nothing */
export async function requireUploaded(sandbox: Sandbox, task: Task): Promise<void> {
  if (task.tests.size > 0) {
    const found = await requireSameTests(sandbox, task);
    const foreign = [...found.keys()].find((path) => !task.tests.has(path));
    if (foreign !== undefined) throw tampered(task, `/tests/${foreign} is not of the task`);
  }
  const [planted] = (await sandbox.download('/logs/verifier', { maxFileBytes: 0, onSkipped: () => undefined })).keys();
  if (planted !== undefined) throw tampered(task, `/logs/verifier/${planted} was there before the tests ran`);
}

/**
 * What the tests themselves add (caches, copies) is theirs to add.
 * @returns what is in /tests
 * @throws VerifierFault TestsTamperedError where a file of the task's tests is missing or has other bytes
 */
export async function requireSameTests(sandbox: Sandbox, task: Task): Promise<FileTree> {
  const skipped = new Set<string>();
  const found = await sandbox.download('/tests', { maxFileBytes: comparableBytes, onSkipped: (path) => skipped.add(path) });
  let total = 0;
  for (const entry of task.tests.values()) total += entry.data.length;
  if (total > comparableBytes) return found;
  for (const [path, { data }] of task.tests) {
    const now = found.get(path)?.data;
    if (now === undefined) throw tampered(task, `/tests/${path} ${skipped.has(path) ? 'has grown' : 'is missing'}`);
    if (!Buffer.from(now.buffer, now.byteOffset, now.length).equals(data)) throw tampered(task, `/tests/${path} has other content`);
  }
  return found;
}

function tampered(task: Task, what: string): VerifierFault {
  return new VerifierFault('TestsTamperedError', `the tests of ${task.id} were changed in the sandbox: ${what}`);
}
