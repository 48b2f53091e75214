/**
 * That the tests which ran are the task's: /tests is read from outside the sandbox's processes, right before the run (nothing else may
 * lie there) and after it (what was uploaded is unchanged).
 */
import type { FileTree, Sandbox, Task } from '../types.ts';
import { VerifierFault } from './faults.ts';

/** Files in which pytest finds its settings; the latter ones hold others' too. */
const settings = ['pytest.ini', '.pytest.ini', 'pyproject.toml', 'tox.ini', 'setup.cfg'];

/**
 * What is put into /tests: the task's tests and, where they use pytest without settings of their own, empty ones, so that pytest does
 * not look for them further up, where an agent's could lie.
 */
export function uploadedTests(task: Task, pytest: boolean): FileTree {
  const own = settings.some((name) => {
    const entry = task.tests.get(name);
    return entry !== undefined && (name.endsWith('pytest.ini') || Buffer.from(entry.data).includes('pytest'));
  });
  return !pytest || own ? task.tests : new Map([...task.tests, ['pytest.ini', { data: Buffer.from('[pytest]\n'), mode: 0o644 }]]);
}

/** What one download holds; of larger tests the rest cannot be compared. */
const comparableBytes = 60 * 1024 * 1024;

/** @throws VerifierFault TestsTamperedError unless /tests holds what was uploaded and nothing else, and /logs/verifier nothing */
export async function requireUploaded(sandbox: Sandbox, task: Task, uploaded: FileTree): Promise<void> {
  if (uploaded.size > 0) {
    const found = await requireSameTests(sandbox, task);
    const foreign = [...found.keys()].find((path) => !uploaded.has(path));
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
  if (task.tests.size === 0) return new Map();
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
