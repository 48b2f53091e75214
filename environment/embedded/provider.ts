/**
 * The embedded sandbox: just-bash, a shell and text tools written in TypeScript over an in-memory file system. It needs no
 * Docker, starts in about a millisecond, and has no network, no processes and no way to the host's files. It runs
 * tasks of shell and text tools only; `refusal` says which ones it cannot.
 *
 * just-bash's `defenseInDepth` is off. It guards against JavaScript of the guest, of which there is none here (its
 * python and js-exec commands stay disabled); it patches globals of the whole worker process while a command runs, and it doubled
 * the time of an episode (6.8 → 14.9 ms for four commands).
 */
import { posix } from 'node:path';
// Before just-bash, which keeps the timers it finds.
import { restoreTimers, SandboxClock } from './clock.ts';
import { Bash, defineCommand } from 'just-bash';
import type { BashOptions } from 'just-bash';
import { InfrastructureError, TaskError } from '../errors.ts';
import { capText } from '../output-cap.ts';
import { SHELL_IMAGE } from '../docker/shell-image.ts';
import { boundedDiff } from './diff.ts';
import { MissingParentError, StrictFs } from './file-system.ts';
import { SessionState } from './session.ts';
import type {
  DownloadLimit,
  ExecOptions,
  ExecResult,
  FileEntry,
  FileTree,
  NetworkPolicy,
  Sandbox,
  SandboxLabels,
  SandboxProvider,
  ShellSession,
  Task,
} from '../types.ts';

restoreTimers();

/**
 * Counts, and no clock, end a runaway command: after the same work on every machine, however loaded it is. Each keeps the
 * worst command it bounds within seconds (measured: docs/durability.md), because the worker's thread can do nothing else meanwhile.
 */
const limits: NonNullable<BashOptions['executionLimits']> = {
  maxCommandCount: 20_000,
  maxLoopIterations: 20_000,
  maxAwkIterations: 200_000,
  // Of one line: what a loop adds to the line makes its next step longer.
  maxSedIterations: 5_000,
  maxStringLength: 1024 * 1024,
  maxOutputSize: 4 * 1024 * 1024,
  maxLiveBytes: 64 * 1024 * 1024,
  maxFileSystemBytes: 64 * 1024 * 1024,
};
/** Of the files that one command reads, all readings together. */
const maxReadBytes = 16 * 1024 * 1024;
/** Far above what the counts allow on a busy machine: when it fires, the machine is at fault. */
const SAFETY_MS = 300_000;
/** Of awk's rand and $RANDOM: the same in every sandbox, as is the time. */
const SEED = 1;
/** A command ran into the safety net: time, and never an outcome. */
class StuckError extends InfrastructureError {
  readonly code = 'stuck';
}
/** Runs in a thread of its own with real time-outs, and the image that this sandbox stands in for lacks it as well. */
const noSqlite = defineCommand('sqlite3', () =>
  Promise.resolve({ stdout: '', stderr: 'bash: sqlite3: command not found\n', exitCode: 127 }),
);

const rootNames = ['root', '0'];

/** Seconds for each RUN line of the environment. */
const runTimeoutSec = 60;

export class EmbeddedProvider implements SandboxProvider {
  readonly kind = 'embedded';
  readonly #safetyMs: number;

  /** `safetyMs`: real time after which a command counts as stuck; for tests. */
  constructor({ safetyMs = SAFETY_MS }: { readonly safetyMs?: number } = {}) {
    this.#safetyMs = safetyMs;
  }

  refusal(task: Task): string | undefined {
    const { image, needs, simple, notSimple = 'its Dockerfile needs a build', network } = task.environment;
    if (image !== SHELL_IMAGE) return `its image is ${image}; the embedded sandbox stands in for ${SHELL_IMAGE} only`;
    if (!simple) return `${notSimple}; the embedded sandbox builds no images`;
    if (needs.length > 0) return `it needs ${needs.join(', ')}; the embedded sandbox has a shell and text tools only`;
    for (const phase of [task, ...(task.steps ?? [])]) {
      const { mode } = [phase.agentNetwork, phase.verifierNetwork, network].find((policy) => policy && policy.mode !== 'none') ?? {};
      if (mode !== undefined) return `it asks for a network (${mode}); the embedded sandbox has none`;
      const user = [phase.agentUser, phase.verifierUser].find((name) => name !== undefined && !rootNames.includes(name));
      if (user !== undefined) return `it runs commands as ${user}; the embedded sandbox has no user but root`;
    }
    return undefined;
  }

  async start(task: Task, _labels: SandboxLabels, signal?: AbortSignal): Promise<Sandbox> {
    const refusal = this.refusal(task);
    if (refusal !== undefined) throw new TaskError(`${task.id}: ${refusal}; use the docker sandbox`);
    const sandbox = new EmbeddedSandbox(task, this.#safetyMs);
    await sandbox.upload(task.environment.files, '/');
    for (const line of task.environment.run) {
      const result = await sandbox.exec(line, { timeoutSec: runTimeoutSec, cwd: '/', ...(signal ? { signal } : {}) });
      if (result.exitCode !== 0)
        throw new TaskError(`${task.id}: RUN ${line} exited with ${result.exitCode} in the embedded sandbox: ${result.stderr.trim()}`);
    }
    return sandbox;
  }

  /** Nothing outlives the process. */
  sweep(): Promise<number> {
    return Promise.resolve(0);
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}

class EmbeddedSandbox implements Sandbox {
  readonly kind = 'embedded';
  readonly #clock: SandboxClock;
  readonly #fs: StrictFs;
  readonly #workdir: string;
  readonly #env: Record<string, string>;

  constructor(task: Task, safetyMs: number) {
    this.#clock = new SandboxClock(SEED, safetyMs);
    this.#workdir = task.workdir;
    this.#env = { HOME: '/root', USER: 'root', ...task.environment.env };
    this.#fs = this.#clock.inside(() => {
      const fs = new StrictFs({}, { maxTotalBytes: 64 * 1024 * 1024 });
      for (const directory of ['/tmp', '/root', task.workdir]) fs.mkdirSync(directory, { recursive: true });
      return fs;
    });
  }

  exec(command: string, options: ExecOptions): Promise<ExecResult> {
    return this.#run(command, options);
  }

  openShell({ user, env = {} }: Pick<ExecOptions, 'user' | 'env'> = {}): Promise<ShellSession> {
    const session = new SessionState();
    const settings = { env, ...(user === undefined ? {} : { user }) };
    let queue: Promise<unknown> = Promise.resolve();
    return Promise.resolve({
      run: (command, options) => {
        const result = queue.then(() => this.#run(command, { ...settings, ...options }, session));
        queue = result.catch(() => undefined);
        return result;
      },
      close: () => queue.then(() => undefined),
    });
  }

  /** There are no processes: a command is over when it returns. */
  killAll(): Promise<void> {
    return Promise.resolve();
  }

  setNetwork(policy: NetworkPolicy): Promise<void> {
    if (policy.mode === 'none') return Promise.resolve();
    return Promise.reject(new TaskError(`the embedded sandbox has no network, and was to get ${policy.mode}; use the docker sandbox`));
  }

  async #run(command: string, options: ExecOptions, session?: SessionState): Promise<ExecResult> {
    options.signal?.throwIfAborted();
    if (options.user !== undefined && !rootNames.includes(options.user))
      throw new TaskError(`the embedded sandbox has no user but root, and was to run a command as ${options.user}; use the docker sandbox`);
    const milliseconds = Math.min(Math.max(1, Math.ceil(options.timeoutSec * 1000)), 2 ** 31 - 1);
    const clock = this.#clock;
    const state = session?.passes(command) ? undefined : session;
    let env: Record<string, string> | undefined;
    const result = await clock.command(milliseconds, async () => {
      // A shell per command: its limits are part of the shell. A session carries its state over.
      const bash = new Bash({
        fs: this.#fs,
        cwd: session?.cwd ?? options.cwd ?? this.#workdir,
        env: { ...this.#env, ...options.env },
        defenseInDepth: false,
        sleep: (duration) => clock.sleep(duration),
        customCommands: [noSqlite, boundedDiff, ...(state ? [state.command] : [])],
        executionLimits: { ...limits, maxExecutionTimeMs: milliseconds },
      });
      state?.attach(bash);
      const previous = session?.previousDir;
      const exhausted = new AbortController();
      try {
        const done = await this.#fs.reading(
          maxReadBytes,
          () => exhausted.abort(),
          () =>
            bash.exec(command, {
              rawScript: true,
              ...(previous === undefined ? {} : { env: { OLDPWD: previous, PWD: session?.cwd ?? '/' } }),
              signal: options.signal ? AbortSignal.any([options.signal, exhausted.signal]) : exhausted.signal,
            }),
        );
        if (exhausted.signal.aborted) return tooMuchRead(done);
        env = done.env;
        return done;
      } catch (error) {
        if (exhausted.signal.aborted) return tooMuchRead();
        return missingParent(error);
      }
    });
    options.signal?.throwIfAborted();
    if (clock.overdue)
      throw new StuckError(
        `the embedded sandbox is stuck: a command took longer than the safety limit, although its work is bounded: ${command.slice(0, 200)}`,
      );
    const timedOut = clock.expired;
    if (state) state.done(env, timedOut);
    else session?.passed(result.exitCode, timedOut);
    return {
      stdout: capText(result.stdout),
      stderr: timedOut ? '' : capText(result.stderr),
      exitCode: timedOut ? 137 : result.exitCode, // 128 + SIGKILL, as in a container
      timedOut,
      seconds: clock.sleptMs / 1000,
    };
  }

  upload(files: FileTree, destination: string): Promise<void> {
    return this.#clock.inside(async () => {
      for (const [path, entry] of files) {
        const target = posix.join(destination, path);
        await this.#fs.mkdir(posix.dirname(target), { recursive: true });
        await this.#fs.writeFile(target, entry.data);
        await this.#fs.chmod(target, entry.mode);
      }
    });
  }

  async download(source: string, limit?: DownloadLimit): Promise<FileTree> {
    const found: [string, FileEntry][] = [];
    // A file that is the source itself has the empty path.
    const take = async (full: string, path: string): Promise<void> => {
      const stat = await this.#fs.lstat(full);
      if (stat.isDirectory) {
        for (const name of await this.#fs.readdir(full)) await take(posix.join(full, name), posix.join(path, name));
      } else if (stat.isFile && limit && stat.size > limit.maxFileBytes) limit.onSkipped(path);
      else if (stat.isFile) found.push([path, { data: await this.#fs.readFileBuffer(full), mode: stat.mode & 0o777 }]);
    };
    if (!(await this.#fs.exists(source))) return new Map();
    await take(source, '');
    return new Map(found.sort(([a], [b]) => (a < b ? -1 : 1)));
  }

  async readFile(path: string): Promise<Uint8Array | undefined> {
    const there = (await this.#fs.exists(path)) && (await this.#fs.stat(path)).isFile;
    return there ? await this.#fs.readFileBuffer(path) : undefined;
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}

/** Like just-bash's other limits. */
function tooMuchRead(done = { stdout: '', stderr: '' }): { stdout: string; stderr: string; exitCode: number } {
  const stderr = done.stderr.replace(/bash: execution aborted\n$/, '');
  return { stdout: done.stdout, stderr: `${stderr}bash: too many bytes read (>${maxReadBytes})\n`, exitCode: 126 };
}

/** What a shell answers to a redirection into a folder that is not there; just-bash lets the file system's error escape. */
function missingParent(error: unknown): { stdout: string; stderr: string; exitCode: number } {
  if (!(error instanceof MissingParentError)) throw error;
  return { stdout: '', stderr: `bash: ${error.path}: No such file or directory\n`, exitCode: 1 };
}
