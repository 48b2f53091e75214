/**
 * Virtual environments with packages from PyPI, for scripts and tests that use Python programs: under .cache/, made by the first who asks
 * and kept. Neither set-up nor a run needs Python.
 */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { access, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { lockName, withSetupLock } from './setup/lock.mjs';

const cache = join(import.meta.dirname, '../.cache');
/** After a failure, others of the same run need not try again. */
const FAILED_MS = 600_000;
/** For a slow mirror. */
const INSTALL_MINUTES = 5;
const exec = promisify(execFile);

export interface PythonEnvironment {
  /** The interpreter, for tools that are started with it. */
  readonly python: string;
  /** Where the packages are. */
  readonly sitePackages: string;
  /**
   * Runs Python source text with `args` as `sys.argv[1:]`.
   * @returns what it wrote to stdout
   * @throws with the end of its traceback
   */
  run(script: string, ...args: string[]): Promise<string>;
  /** The same with the path of a program. */
  runFile(program: string, ...args: string[]): Promise<string>;
}

export interface EnvironmentRequest {
  /** What it is for, in errors and as the beginning of the folder's name. */
  readonly name: string;
  /** Requirements with their versions, e.g. `gguf==0.19.0`. */
  readonly packages: readonly string[];
  /** Further ones, installed without what they depend on. */
  readonly alone?: readonly string[];
  /** Oldest Python 3 that will do. */
  readonly minor: number;
  /** How long pip may take; default 5. */
  readonly minutes?: number;
}

const asked = new Map<string, Promise<PythonEnvironment | { readonly skip: string }>>();

/** The environment, or why it cannot be had on this machine. Other packages or versions give another one. */
export function pythonEnvironment(request: EnvironmentRequest): Promise<PythonEnvironment | { readonly skip: string }> {
  const hash = createHash('sha256').update(JSON.stringify(request)).digest('hex').slice(0, 8);
  const folder = join(cache, `${request.name}-${hash}`);
  const made = asked.get(folder) ?? make(folder, request);
  asked.set(folder, made);
  return made;
}

async function make(folder: string, request: EnvironmentRequest): Promise<PythonEnvironment | { readonly skip: string }> {
  const python = join(folder, 'bin/python');
  const reason = await withSetupLock(() => install(folder, request), { name: lockName(folder) });
  if (reason !== undefined) return { skip: `${request.name} cannot be installed: ${reason}` };
  const [version] = await readdir(join(folder, 'lib'));
  const start = async (...args: string[]): Promise<string> => (await exec(python, args, { maxBuffer: 64 * 1024 * 1024 })).stdout;
  return {
    python,
    sitePackages: join(folder, 'lib', version as string, 'site-packages'),
    run: (script, ...args) => start('-c', script, ...args),
    runFile: (program, ...args) => start(program, ...args),
  };
}

/** @returns why it cannot be installed */
async function install(
  folder: string,
  { packages, alone = [], minor, minutes = INSTALL_MINUTES }: EnvironmentRequest,
): Promise<string | undefined> {
  const python = join(folder, 'bin/python');
  /** Written last, so that a half-made environment is made again. */
  const complete = join(folder, 'complete');
  const failed = `${folder}.failed`;
  // The second look finds an interpreter that is gone since.
  if ((await exists(complete)) && (await exists(python))) return undefined;
  const lately = await stat(failed).catch(() => undefined);
  if (lately && Date.now() - lately.mtimeMs < FAILED_MS) return readFile(failed, 'utf8');
  try {
    const base = await findPython(minor);
    await rm(folder, { recursive: true, force: true });
    await exec(base, ['-m', 'venv', folder]);
    const pip = ['-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', '--no-input', '--retries', '1'];
    await exec(python, [...pip, ...packages], { timeout: 60_000 * minutes });
    if (alone.length > 0) await exec(python, [...pip, '--no-deps', ...alone], { timeout: 60_000 * minutes });
    await writeFile(complete, '');
    return undefined;
  } catch (error) {
    const { stderr, message, killed } = error as Error & { stderr?: string; killed?: boolean };
    const reason = killed ? `pip took more than ${minutes} minutes` : ((stderr?.trim() || message).split('\n').at(-1) ?? message);
    // Without the mark the next one only tries again.
    await writeFile(failed, reason).catch(() => undefined);
    return reason;
  }
}

/** The first interpreter of Python 3.`minor` or later: on PATH, else pyenv's. @throws naming what was looked for */
async function findPython(minor: number): Promise<string> {
  const versions = join(process.env.PYENV_ROOT ?? join(homedir(), '.pyenv'), 'versions');
  const pyenv = (await readdir(versions).catch(() => [])).map((name) => join(versions, name, 'bin/python3'));
  const recent = `import sys, venv, ensurepip; sys.exit(sys.version_info < (3, ${minor}))`;
  for (const candidate of ['python3.12', 'python3.13', 'python3', ...pyenv])
    if (await succeeds(candidate, ['-c', recent])) return candidate;
  throw new Error(`no Python 3.${minor} or later on PATH or in pyenv`);
}

const succeeds = (program: string, args: readonly string[]): Promise<boolean> =>
  exec(program, args).then(
    () => true,
    () => false,
  );
const exists = (path: string): Promise<boolean> =>
  access(path).then(
    () => true,
    () => false,
  );
