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
import { Bash, InMemoryFs } from 'just-bash';
import type { BashOptions } from 'just-bash';
import { TaskError } from './errors.ts';
import { capText } from './output-cap.ts';
import { SHELL_IMAGE } from './shell-image.ts';
import type {
  DownloadLimit,
  ExecOptions,
  ExecResult,
  FileEntry,
  FileTree,
  Sandbox,
  SandboxLabels,
  SandboxProvider,
  Task,
} from './types.ts';

/**
 * Counted limits end a runaway command after the same work on every machine, long before a time-out in seconds would:
 * episodes stay repeatable. A busy loop reaches 20,000 commands in about 0.5 s on one core.
 */
const limits: NonNullable<BashOptions['executionLimits']> = {
  maxCommandCount: 20_000,
  maxLoopIterations: 20_000,
  maxAwkIterations: 200_000,
  maxSedIterations: 200_000,
  maxStringLength: 4 * 1024 * 1024,
  maxOutputSize: 4 * 1024 * 1024,
  maxLiveBytes: 64 * 1024 * 1024,
  maxFileSystemBytes: 64 * 1024 * 1024,
};

const fixedTime = new Date('2026-01-01T00:00:00Z');
/** Seconds for each RUN line of the environment. */
const runTimeoutSec = 60;

export class EmbeddedProvider implements SandboxProvider {
  readonly kind = 'embedded';

  refusal(task: Task): string | undefined {
    const { image, needs } = task.environment;
    if (image !== SHELL_IMAGE) return `its image is ${image}; the embedded sandbox stands in for ${SHELL_IMAGE} only`;
    if (needs.length > 0) return `it needs ${needs.join(', ')}; the embedded sandbox has a shell and text tools only`;
    return undefined;
  }

  async start(task: Task, _labels: SandboxLabels, signal?: AbortSignal): Promise<Sandbox> {
    const refusal = this.refusal(task);
    if (refusal !== undefined) throw new TaskError(`${task.id}: ${refusal}; use the docker sandbox`);
    const sandbox = new EmbeddedSandbox(task);
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
  readonly #fs = new RepeatableFs({}, { maxTotalBytes: 64 * 1024 * 1024 });
  readonly #workdir: string;
  readonly #env: Record<string, string>;

  constructor(task: Task) {
    this.#workdir = task.workdir;
    this.#env = { HOME: '/root', USER: 'root', ...task.environment.env };
    for (const directory of ['/tmp', '/root', task.workdir]) this.#fs.mkdirSync(directory, { recursive: true });
  }

  async exec(command: string, options: ExecOptions): Promise<ExecResult> {
    options.signal?.throwIfAborted();
    const milliseconds = Math.min(options.timeoutSec * 1000, 2 ** 31 - 1);
    // just-bash leaves the timer of a `sleep` running that outlasts its command; it would keep the process alive.
    const sleeping = new Set<NodeJS.Timeout>();
    const sleep = (duration: number): Promise<void> => new Promise((resolve) => sleeping.add(setTimeout(resolve, duration)));
    // A shell per command: its time limit is part of the shell, and it also stops loops that never yield to timers.
    const bash = new Bash({
      fs: this.#fs,
      cwd: options.cwd ?? this.#workdir,
      env: { ...this.#env, ...options.env },
      defenseInDepth: false,
      sleep,
      executionLimits: { ...limits, maxExecutionTimeMs: Math.max(1, Math.ceil(milliseconds)) },
    });
    const started = performance.now();
    const result = await bash
      .exec(command, { rawScript: true, ...(options.signal ? { signal: options.signal } : {}) })
      .catch(missingParent)
      .finally(() => sleeping.forEach((timer) => clearTimeout(timer)));
    options.signal?.throwIfAborted();
    const timedOut = result.exitCode === 124 && performance.now() - started >= milliseconds;
    return {
      stdout: capText(result.stdout),
      stderr: timedOut ? '' : capText(result.stderr),
      exitCode: timedOut ? 137 : result.exitCode, // 128 + SIGKILL, as in a container
      timedOut,
    };
  }

  async upload(files: FileTree, destination: string): Promise<void> {
    for (const [path, entry] of files) {
      const target = posix.join(destination, path);
      await this.#fs.mkdir(posix.dirname(target), { recursive: true });
      await this.#fs.writeFile(target, entry.data);
      await this.#fs.chmod(target, entry.mode);
    }
  }

  async download(source: string, limit?: DownloadLimit): Promise<FileTree> {
    const found: [string, FileEntry][] = [];
    const walk = async (directory: string, prefix: string): Promise<void> => {
      for (const name of await this.#fs.readdir(directory)) {
        const full = posix.join(directory, name);
        const path = prefix + name;
        const stat = await this.#fs.lstat(full);
        if (stat.isDirectory) await walk(full, `${path}/`);
        else if (stat.isFile && limit && stat.size > limit.maxFileBytes) limit.onSkipped(path);
        else if (stat.isFile) found.push([path, { data: await this.#fs.readFileBuffer(full), mode: stat.mode & 0o777 }]);
      }
    };
    if (!(await this.#fs.exists(source))) return new Map();
    await walk(source, '');
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

/** What a shell answers to a redirection into a folder that is not there; just-bash lets the file system's error escape. */
function missingParent(error: unknown): { stdout: string; stderr: string; exitCode: number } {
  if (!(error instanceof MissingParentError)) throw error;
  return { stdout: '', stderr: `bash: ${error.path}: No such file or directory\n`, exitCode: 1 };
}

class MissingParentError extends Error {
  readonly path: string;
  constructor(path: string) {
    super(`ENOENT: no such file or directory, open '${path}'`);
    this.path = path;
  }
}

/**
 * Shows every file that was made or changed in the sandbox with one fixed time, so that `ls -l` says the same in every
 * repetition of an episode. Times that a command sets itself (`touch -d`) are kept.
 *
 * Refuses to write where there is no folder. just-bash's file system makes missing parents, so that `mkdir` would
 * never matter and rewriting would drop it from every procedure.
 */
class RepeatableFs extends InMemoryFs {
  readonly #started = Date.now();

  override async stat(path: string): ReturnType<InMemoryFs['stat']> {
    return this.#repeatable(await super.stat(path));
  }

  override async lstat(path: string): ReturnType<InMemoryFs['lstat']> {
    return this.#repeatable(await super.lstat(path));
  }

  override async writeFile(path: string, ...rest: Rest<InMemoryFs['writeFile']>): Promise<void> {
    await this.#needParent(path);
    await super.writeFile(path, ...rest);
  }

  override async appendFile(path: string, ...rest: Rest<InMemoryFs['appendFile']>): Promise<void> {
    await this.#needParent(path);
    await super.appendFile(path, ...rest);
  }

  override async cp(source: string, target: string, ...rest: Rest2<InMemoryFs['cp']>): Promise<void> {
    await this.#needParent(target);
    await super.cp(source, target, ...rest);
  }

  override async mv(source: string, target: string): Promise<void> {
    await this.#needParent(target);
    await super.mv(source, target);
  }

  async #needParent(path: string): Promise<void> {
    if (!(await this.exists(posix.dirname(path)))) throw new MissingParentError(path);
  }

  #repeatable<T extends { mtime: Date }>(stat: T): T {
    const now = stat.mtime.getTime() >= this.#started - 1000 && stat.mtime.getTime() <= Date.now() + 1000;
    return now ? { ...stat, mtime: fixedTime } : stat;
  }
}

type Rest<F> = F extends (first: string, ...rest: infer R) => unknown ? R : never;
type Rest2<F> = F extends (first: string, second: string, ...rest: infer R) => unknown ? R : never;
