/**
 * One run of a task's tests in a sandbox that is ready for them, and its verdict; the same for both modes (shared.ts, separate.ts).
 *
 * Each part has a limit of its own, so that a slow upload is never taken for hung tests: uploading (AddTestsDirError) and reading the
 * results (DownloadVerifierDirError) are the machine's and are thrown; the test run alone has the task's limit, and its time-out is a
 * verdict of its own (`no-verdict`, VerifierTimeoutError) that nobody repeats.
 */
import { InfrastructureError } from '../errors.ts';
import { quote } from '../tasks/dockerfile.ts';
import { resolveEnv } from '../tasks/env-templates.ts';
import type { FileTree, Sandbox, Task, Verdict } from '../types.ts';
import { readCtrf } from './ctrf.ts';
import { VerifierFault, verdictOfFault, within } from './faults.ts';
import { requireSameTests } from './integrity.ts';
import { readRewards, verdictOf } from './rewards.ts';
import type { RewardReading } from './rewards.ts';

export interface Judged {
  readonly verdict: Verdict;
  /** What is in /logs/verifier, for the job folder; files beyond the limit are left out. */
  readonly files: FileTree;
}

export interface TestRunOptions {
  readonly task: Task;
  readonly sandbox: Sandbox;
  readonly reading?: RewardReading;
  readonly signal?: AbortSignal;
}

const logs = '/logs/verifier';
const testCommand = `bash -c "(/tests/test.sh) > ${logs}/test-stdout.txt 2>&1"`;
/** Seconds. What is done around the tests, each by itself. */
const limits = { prepare: 60, upload: 120, read: 120 } as const;
/** Of one file of /logs/verifier. The tests' output keeps its beginning and its end. */
const maxFileBytes = 4 * 1024 * 1024;
const maxOutputBytes = 1024 * 1024;

/** A new directory of root's, whatever was in its place, whoever owned it and whatever it linked to; a mount point is emptied. */
const recreate = (directory: string): string => `rm -rf ${directory} 2>/dev/null
[ ! -L ${directory} ] && mkdir -p ${directory} || exit 1
for f in ${directory}/* ${directory}/.[!.]* ${directory}/..?*; do if [ -e "$f" ] || [ -L "$f" ]; then exit 1; fi; done`;
const resetLogs = `if [ -L /logs ] || [ ! -d /logs ]; then rm -rf /logs; fi
${recreate(logs)}
chmod 755 /logs && chmod 777 ${logs} || exit 1`;
const resetTests = `${recreate('/tests')}
chmod 755 /tests || exit 1`;

/** Runs a command that must work, as root in `cwd`. @throws InfrastructureError of the type */
export async function must(
  sandbox: Sandbox,
  command: string,
  { type, action, cwd = '/' }: { readonly type: string; readonly action: string; readonly cwd?: string },
  signal?: AbortSignal,
): Promise<void> {
  const result = await sandbox.exec(command, { timeoutSec: limits.prepare, cwd, user: 'root', ...(signal ? { signal } : {}) });
  if (result.timedOut) throw new InfrastructureError(`${action} within ${limits.prepare} s`, { type });
  if (result.exitCode !== 0)
    throw new InfrastructureError(`${action}: ${command} exited with ${result.exitCode}: ${result.stderr.trim().slice(-300)}`, { type });
}

/** Makes /logs/verifier anew and puts the tests into a new /tests; a verifier's image that brings its own keeps them. */
export async function bringTests({ task, sandbox, signal }: TestRunOptions): Promise<void> {
  const failure = { type: 'AddTestsDirError', action: `${task.id}: the tests could not be brought into the sandbox` };
  const workdir = quote(task.workdir);
  // An agent that removed the workdir is judged all the same.
  const reset = `${resetLogs}\nif [ ! -d ${workdir} ]; then rm -rf ${workdir}; mkdir -p ${workdir} || exit 1; fi`;
  if (task.tests.size === 0) return must(sandbox, reset, failure, signal);
  await must(sandbox, `${reset}\n${resetTests}`, failure, signal);
  await within({ ...failure, seconds: limits.upload }, signal, () => sandbox.upload(task.tests, '/tests'));
  await must(sandbox, 'chmod +x /tests/test.sh', failure, signal);
}

/**
 * Runs the tests as [verifier].user in the workdir; their exit status says nothing.
 * @throws InfrastructureError when the sandbox fails
 */
export async function judgeTests(options: TestRunOptions): Promise<Judged> {
  const { task, sandbox, reading, signal } = options;
  const run = await sandbox.exec(testCommand, {
    timeoutSec: task.verifierTimeoutSec,
    env: resolveEnv(task.verifierEnv, `${task.id}: [verifier]`),
    ...(task.verifierUser === undefined ? {} : { user: task.verifierUser }),
    ...(signal ? { signal } : {}),
  });
  const files = await readLogs(options);
  try {
    if (run.timedOut)
      throw new VerifierFault('VerifierTimeoutError', `tests/test.sh of ${task.id} ran longer than ${task.verifierTimeoutSec} s`);
    await requireSameTests(sandbox, task);
    return { verdict: verdictOf(readRewards(files, task.id, reading), readCtrf(files)), files };
  } catch (error) {
    return { verdict: verdictOfFault(error), files };
  }
}

async function readLogs({ task, sandbox, signal }: TestRunOptions): Promise<FileTree> {
  const failure = { type: 'DownloadVerifierDirError', action: `${task.id}: the results could not be read` };
  const half = maxOutputBytes / 2;
  const output = quote(`${logs}/test-stdout.txt`);
  const cut = `f=${output}; if [ -f $f ] && [ ! -L $f ] && [ "$(wc -c < $f)" -gt ${maxOutputBytes} ]; then
{ head -c ${half} $f; printf '\\n[output omitted]\\n'; tail -c ${half} $f; } > $f.cut && mv $f.cut $f; fi`;
  await must(sandbox, cut, failure, signal);
  return within({ ...failure, seconds: limits.read }, signal, () => sandbox.download(logs, { maxFileBytes, onSkipped: () => undefined }));
}
