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
import { requireSameTests, requireUploaded, uploadedTests } from './integrity.ts';
import { bringKit, readKitReport, requireComplete, testNeeds } from './kit.ts';
import type { TestShell } from './kit.ts';
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
  /** The agent worked in this sandbox. */
  readonly shared: boolean;
  readonly signal?: AbortSignal;
}

const logs = '/logs/verifier';
const output = 'test-stdout.txt';
const testCommand = `bash -c "(/tests/test.sh) > ${logs}/${output} 2>&1"`;
/** Seconds. What is done around the tests, each by itself. */
const limits = { prepare: 60, upload: 120, kit: 400, read: 120 } as const;
/** Of one file of /logs/verifier. The tests' output keeps its beginning and its end. */
const maxFileBytes = 4 * 1024 * 1024;
const maxOutputBytes = 1024 * 1024;

/** A new directory of root's, whatever was in its place, whoever owned it and whatever it linked to; a mount point is emptied. */
const recreate = (directory: string): string => `[ -L ${directory} ] || chmod -R u+rwX ${directory} 2>/dev/null
rm -rf ${directory} 2>/dev/null
[ ! -L ${directory} ] && mkdir -p ${directory} || exit 1
for f in ${directory}/* ${directory}/.[!.]* ${directory}/..?*; do if [ -e "$f" ] || [ -L "$f" ]; then exit 1; fi; done`;
const resetLogs = `if [ -L /logs ] || [ ! -d /logs ]; then rm -rf /logs; fi
${recreate(logs)}
chmod 755 /logs && chmod 777 ${logs} || exit 1`;
const resetTests = `${recreate('/tests')}
chmod 755 /tests || exit 1`;
/** Where no agent worked, what the image holds is all there can be. */
const resetFresh = `rm -rf ${logs} && mkdir -p ${logs} && chmod 755 /logs && chmod 777 ${logs}`;

/** The system's own commands before those that an agent put where people install theirs; `image_path` is what the image has. */
const systemPath = 'image_path=$PATH; PATH=/usr/sbin:/usr/bin:/sbin:/bin:$PATH; export image_path PATH\n';

/** Runs a command that must work, as root in `cwd`. @throws InfrastructureError of the type */
export async function must(
  sandbox: Sandbox,
  command: string,
  { type, action, cwd = '/' }: { readonly type: string; readonly action: string; readonly cwd?: string },
  signal?: AbortSignal,
): Promise<void> {
  const result = await sandbox.exec(systemPath + command, { timeoutSec: limits.prepare, cwd, user: 'root', ...(signal ? { signal } : {}) });
  if (result.timedOut) throw new InfrastructureError(`${action} within ${limits.prepare} s`, { type });
  if (result.exitCode !== 0)
    throw new InfrastructureError(`${action}: ${command} exited with ${result.exitCode}: ${result.stderr.trim().slice(-300)}`, { type });
}

/**
 * Brings the tests, runs them as [verifier].user in the workdir (their exit status says nothing) and reads what they wrote.
 * @throws InfrastructureError when the sandbox fails
 */
export async function judgeTests(options: TestRunOptions): Promise<Judged> {
  let files: FileTree = new Map();
  try {
    const shell = await bringTests(options);
    const timedOut = await runTests(options, shell);
    files = await readLogs(options);
    if (shell.kit) await checkKit(options, files);
    return { verdict: await judge(options, files, timedOut), files };
  } catch (error) {
    return { verdict: verdictOfFault(error), files };
  }
}

/** Makes /logs/verifier anew and puts the tests into a new /tests; a verifier's image that brings its own keeps them. */
async function bringTests(options: TestRunOptions): Promise<TestShell> {
  const { task, sandbox, shared, signal } = options;
  const failure = { type: 'AddTestsDirError', action: `${task.id}: the tests could not be brought into the sandbox` };
  const run = (command: string): Promise<void> => must(sandbox, command, failure, signal);
  const workdir = quote(task.workdir);
  // An agent that removed the workdir is judged all the same.
  const agents = `${resetLogs}\nif [ ! -d ${workdir} ]; then rm -rf ${workdir}; mkdir -p ${workdir} || exit 1; fi`;
  const reset = shared ? agents : `${resetFresh} && mkdir -p ${workdir}`;
  const { pytest } = testNeeds(task.tests);
  const tests = task.tests.size === 0 ? task.tests : uploadedTests(task, pytest);
  if (tests.size === 0) await run(reset);
  else {
    await run(shared ? `${reset}\n${resetTests}` : `${reset} && rm -rf /tests && mkdir /tests`);
    await within({ ...failure, seconds: limits.upload }, signal, () => sandbox.upload(runnable(tests), '/tests'));
  }
  if (shared) await requireUploaded(sandbox, task, tests);
  return within({ ...failure, seconds: limits.kit }, signal, () => bringKit({ task, sandbox, shared }, run));
}

function runnable(tests: FileTree): FileTree {
  const script = tests.get('test.sh');
  return script ? new Map([...tests, ['test.sh', { ...script, mode: script.mode | 0o111 }]]) : tests;
}

/** @returns whether they ran longer than the task allows */
async function runTests({ task, sandbox, signal }: TestRunOptions, { env, setUp }: TestShell): Promise<boolean> {
  const { timedOut } = await sandbox.exec(`${setUp}${testCommand}`, {
    timeoutSec: task.verifierTimeoutSec,
    env: { ...env, ...resolveEnv(task.verifierEnv, `${task.id}: [verifier]`) },
    ...(task.verifierUser === undefined ? {} : { user: task.verifierUser }),
    ...(signal ? { signal } : {}),
  });
  return timedOut;
}

async function judge({ task, sandbox, reading }: TestRunOptions, files: FileTree, timedOut: boolean): Promise<Verdict> {
  if (timedOut) throw new VerifierFault('VerifierTimeoutError', `tests/test.sh of ${task.id} ran longer than ${task.verifierTimeoutSec} s`);
  await requireSameTests(sandbox, task);
  return verdictOf(readRewards(files, task.id, reading), readCtrf(files));
}

/** The kit's notes lie beside the logs. @throws VerifierFault where something was missing */
async function checkKit({ task, sandbox }: TestRunOptions, files: FileTree): Promise<void> {
  const report = await readKitReport(sandbox);
  if (report.notes !== '') files.set('kit-notes.txt', { data: Buffer.from(report.notes), mode: 0o644 });
  requireComplete(task, report);
}

async function readLogs({ task, sandbox, signal }: TestRunOptions): Promise<FileTree> {
  const failure = { type: 'DownloadVerifierDirError', action: `${task.id}: the results could not be read` };
  const skipped = new Set<string>();
  const read = (): Promise<FileTree> =>
    within({ ...failure, seconds: limits.read }, signal, () =>
      sandbox.download(logs, { maxFileBytes, onSkipped: (path) => skipped.add(path) }),
    );
  const files = await read();
  if (!skipped.has(output) && (files.get(output)?.data.length ?? 0) <= maxOutputBytes) return files;
  const half = maxOutputBytes / 2;
  const file = `${logs}/${output}`;
  await must(
    sandbox,
    `{ head -c ${half} ${file}; printf '\\n[output omitted]\\n'; tail -c ${half} ${file}; } > ${file}.cut && mv ${file}.cut ${file}`,
    failure,
    signal,
  );
  return read();
}
