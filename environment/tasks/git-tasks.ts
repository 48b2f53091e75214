/** Task directories out of git repositories, checked out once per commit and kept. */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { access, mkdir, mkdtemp, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { InfrastructureError, UserError } from '../errors.ts';

export interface Checkout {
  readonly url: string;
  /** Commit, branch or tag; default: the repository's HEAD, as it is now. */
  readonly commit: string | undefined;
  /** Directories that are needed, relative to the repository. */
  readonly paths: readonly string[];
  readonly cache: string;
}

const run = promisify(execFile);
const isCommit = /^[0-9a-f]{40}$/;

/**
 * @returns a folder with `paths` of the repository in it
 * @throws InfrastructureError where the repository or the commit cannot be fetched, UserError without git
 */
export async function checkOut({ url, commit, paths, cache }: Checkout): Promise<string> {
  const reference = commit === undefined || /^head$/i.test(commit) ? 'HEAD' : commit;
  if (/^-/.test(url) || !/^[\w][\w./-]*$/.test(reference))
    throw new UserError(`git: ${url} ${reference}: expected an address and a commit`);
  const exact = isCommit.test(reference) ? reference : await resolveReference(url, reference);
  const wanted = [...new Set(paths)].sort();
  const key = createHash('sha256')
    .update([url, exact, ...wanted].join('\0'))
    .digest('hex')
    .slice(0, 20);
  const folder = join(cache, key);
  if (await exists(folder)) return folder;
  await mkdir(cache, { recursive: true });
  const work = await mkdtemp(join(cache, `${key}.`));
  try {
    await fetchInto(work, url, exact, wanted);
    await rm(join(work, '.git'), { recursive: true });
    // Whole or not there; another process may have been faster.
    await rename(work, folder).catch(async (error: unknown) => {
      if (!(await exists(folder))) throw error;
    });
    return folder;
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

async function fetchInto(work: string, url: string, commit: string, paths: readonly string[]): Promise<void> {
  await git(url, ['init', '--quiet', work]);
  await git(url, ['-C', work, 'remote', 'add', 'origin', url]);
  // Hugging Face's server cannot send single files later.
  const filter = url.includes('huggingface.co') ? [] : ['--filter=blob:none'];
  const fetch = (...what: string[]): Promise<string> => git(url, ['-C', work, 'fetch', '--quiet', ...filter, 'origin', ...what]);
  // Not every server gives a single commit by its id.
  await fetch('--depth=1', commit).catch(() => fetch('+refs/*:refs/remotes/origin/*'));
  const patterns = paths.map((path) => (path === '.' ? '/*' : `/${path}/`));
  await git(url, ['-C', work, 'sparse-checkout', 'set', '--no-cone', ...patterns]);
  await git(url, ['-C', work, 'checkout', '--quiet', commit]);
}

async function resolveReference(url: string, reference: string): Promise<string> {
  const lines = (await git(url, ['ls-remote', '--', url, reference])).trim().split('\n');
  // Of an annotated tag, the commit behind it.
  const [id = ''] = (lines.find((line) => line.endsWith('^{}')) ?? lines[0] ?? '').split('\t');
  if (!isCommit.test(id)) throw new UserError(`${url}: has no ${reference}; expected a commit, branch or tag of the repository`);
  return id;
}

async function git(url: string, args: readonly string[]): Promise<string> {
  try {
    const env = { ...process.env, GIT_TERMINAL_PROMPT: '0' };
    return (await run('git', args, { env, maxBuffer: 64 * 1024 * 1024 })).stdout;
  } catch (error) {
    const { code, stderr = '', message } = error as NodeJS.ErrnoException & { stderr?: string };
    if (code === 'ENOENT')
      throw new UserError(`${url}: git is not on this machine; install it, or clone the repository elsewhere and give its folder of tasks`);
    const reason = stderr.trim().split('\n').at(-1) || message;
    throw new InfrastructureError(`${url}: git ${args.find((arg) => /^[a-z]/.test(arg))} failed: ${reason}. By hand: git clone ${url}`);
  }
}

const exists = (path: string): Promise<boolean> =>
  access(path).then(
    () => true,
    () => false,
  );
