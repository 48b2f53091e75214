/**
 * Harbor itself, as published on PyPI, for tests that compare with it: a virtual environment of its own under .cache/, made by the first
 * test that asks for it and kept. Only tests use it; neither set-up nor a run does.
 */
import { execFile } from 'node:child_process';
import { access, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { lockName, withSetupLock } from '../scripts/setup/lock.mjs';

/** The newest release when this was written; its schemas are what the tests expect. */
export const HARBOR_VERSION = '0.26.0';
const folder = join(import.meta.dirname, '../.cache', `harbor-${HARBOR_VERSION}`);
/** Written last, so that a half-made environment is made again. */
const complete = join(folder, 'complete');
/** Why it could not be made. The other test files of the same run need not try again. */
const failed = `${folder}.failed`;
const FAILED_MS = 600_000;
/** For a slow mirror. */
const INSTALL_MS = 300_000;
const exec = promisify(execFile);

export interface HarborPython {
  /** The interpreter, for tools that are started with it. */
  readonly python: string;
  /**
   * Runs Python source text with `args` as `sys.argv[1:]`.
   * @returns what it wrote to stdout
   * @throws with the end of its traceback
   */
  run(script: string, ...args: string[]): Promise<string>;
}

let made: Promise<HarborPython | { readonly skip: string }> | undefined;

/** Harbor's Python, or why it cannot be had on this machine. */
export function harborPython(): Promise<HarborPython | { readonly skip: string }> {
  return (made ??= make());
}

async function make(): Promise<HarborPython | { readonly skip: string }> {
  const python = join(folder, 'bin/python');
  const reason = await withSetupLock(() => install(python), { name: lockName(folder) });
  if (reason !== undefined) return { skip: `Harbor ${HARBOR_VERSION} cannot be installed: ${reason}` };
  return {
    python,
    run: async (script, ...args) => (await exec(python, ['-c', script, ...args], { maxBuffer: 64 * 1024 * 1024 })).stdout,
  };
}

/** @returns why it cannot be installed */
async function install(python: string): Promise<string | undefined> {
  // The second look finds an interpreter that is gone since.
  if ((await exists(complete)) && (await exists(python))) return undefined;
  const lately = await stat(failed).catch(() => undefined);
  if (lately && Date.now() - lately.mtimeMs < FAILED_MS) return readFile(failed, 'utf8');
  try {
    const base = await findPython();
    await rm(folder, { recursive: true, force: true });
    await exec(base, ['-m', 'venv', folder]);
    const pip = ['-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', '--no-input', '--retries', '1'];
    await exec(python, [...pip, `harbor==${HARBOR_VERSION}`], { timeout: INSTALL_MS });
    await writeFile(complete, '');
    return undefined;
  } catch (error) {
    const { stderr, message, killed } = error as Error & { stderr?: string; killed?: boolean };
    const reason = killed ? `pip took more than ${INSTALL_MS / 1000} s` : ((stderr?.trim() || message).split('\n').at(-1) ?? message);
    await writeFile(failed, reason).catch(() => undefined);
    return reason;
  }
}

/** The first interpreter of Python 3.12 or later: on PATH, else pyenv's. @throws naming what was looked for */
async function findPython(): Promise<string> {
  const versions = join(process.env.PYENV_ROOT ?? join(homedir(), '.pyenv'), 'versions');
  const pyenv = (await readdir(versions).catch(() => [])).map((name) => join(versions, name, 'bin/python3'));
  for (const candidate of ['python3.12', 'python3.13', 'python3', ...pyenv]) {
    const recent = 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 12))';
    if (
      await exec(candidate, ['-c', recent]).then(
        () => true,
        () => false,
      )
    )
      return candidate;
  }
  throw new Error('no Python 3.12 or later on PATH or in pyenv');
}

const exists = (path: string): Promise<boolean> =>
  access(path).then(
    () => true,
    () => false,
  );
