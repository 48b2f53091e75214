/**
 * The workflow code that a rollout worker runs: one bundle, built once, and kept with a stamp that says what it was made
 * of. A worker that starts again after a crash reads it instead of building it, and a bundle of another SDK version or of
 * other sources is never run: Temporal itself would not notice before a history fails to replay.
 *
 * A bundle file is one line with the stamp and the SHA-256 of the rest, and then the code. It is written under another
 * name and renamed, so that workers which start at the same time each find a whole file or none.
 */
import { createHash, randomUUID } from 'node:crypto';
import { mkdir, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import path from 'node:path';
import { bundleWorkflowCode, DefaultLogger } from '@temporalio/worker';
import { sourceHash } from '../activities/code-version.ts';
import { UserError } from '../environment/errors.ts';
import { repoRoot } from '../records/paths.ts';

export const workflowsPath = path.join(repoRoot, 'workflows', 'index.ts');
/** ESLint holds workflows/ to these two folders, types aside; workers/bundle.test.ts compares with what is in the bundle. */
const SOURCES = ['workflows', 'method'];
/** Packages that workflow code imports beside the SDK. */
const PACKAGES = ['zod'];
const KEPT_FILES = 8;
const MARK = '// terminal-rsi workflow bundle ';
const require = createRequire(import.meta.url);

/**
 * What a bundle is made of. Equal stamps mean that workflows behave the same; the version of Node is not in it, because it
 * does not change the code.
 */
export interface BundleStamp {
  /** Version of the Temporal SDK. */
  readonly sdk: string;
  /** First 12 hex digits of the SHA-256 over workflows/ and method/, tests left out. */
  readonly source: string;
  /** Package → version. */
  readonly packages: Readonly<Record<string, string>>;
  /** Workflow interceptors built in, e.g. for tracing: their module, and for a file of ours a hash of it. */
  readonly interceptors: readonly string[];
}
export interface BundleOptions {
  /**
   * Modules with workflow interceptors: packages, or absolute paths of files that import only packages, workflows/ and method/.
   * A worker cannot add them to a finished bundle.
   */
  readonly interceptorModules?: readonly string[];
  /** Default: `.cache/workflow-bundles` in the repository. */
  readonly cache?: string;
}
export interface WorkflowBundle {
  readonly code: string;
  readonly stamp: BundleStamp;
  /** Where the code came from. */
  readonly origin: 'built' | 'cache' | 'file';
  /** The file that it was read from or written to; absent when the cache could not be written. */
  readonly file?: string;
}

/** The stamp of a bundle made now, from this install's SDK and sources. */
export async function bundleStamp({ interceptorModules = [] }: BundleOptions = {}): Promise<BundleStamp> {
  return {
    sdk: versionOf('@temporalio/worker'),
    source: await sourceHash(SOURCES),
    packages: Object.fromEntries(PACKAGES.map((name) => [name, versionOf(name)])),
    interceptors: await Promise.all(interceptorModules.map(interceptorStamp)),
  };
}

/** `sdk 1.24.0, source 0a1b2c3d4e5f, zod 4.6.7`, and the interceptors where there are any. */
export function stampText({ sdk, source, packages, interceptors }: BundleStamp): string {
  const versions = Object.entries(packages).map(([name, version]) => `${name} ${version}`);
  return [`sdk ${sdk}`, `source ${source}`, ...versions, ...interceptors.map((name) => `with ${name}`)].join(', ');
}

/**
 * The bundle that a worker runs. With TERMINAL_RSI_WORKFLOW_BUNDLE it is the file named there, which has to fit this
 * install; otherwise it comes from the cache, and what the cache lacks is built and kept.
 * @throws UserError when the named file is missing, damaged or has another stamp: both stamps, and the command to build it.
 */
export async function loadWorkflowBundle(options: BundleOptions = {}): Promise<WorkflowBundle> {
  const stamp = await bundleStamp(options);
  const named = process.env['TERMINAL_RSI_WORKFLOW_BUNDLE'];
  if (named) return await prebuilt(path.resolve(named), stamp);
  const cache = options.cache ?? path.join(repoRoot, '.cache', 'workflow-bundles');
  const file = path.join(cache, `${hashOf(JSON.stringify(stamp)).slice(0, 12)}.js`);
  const found = await readBundle(file);
  if ('code' in found && stampText(found.stamp) === stampText(stamp)) return { code: found.code, stamp, origin: 'cache', file };
  const code = await build(options);
  // Sources that were edited during the build: nothing says which of the two states the code has.
  if (stampText(await bundleStamp(options)) !== stampText(stamp)) return await loadWorkflowBundle(options);
  try {
    await write(file, code, stamp);
    await prune(cache);
  } catch {
    // An install that nobody may write to still runs; it only starts more slowly.
    return { code, stamp, origin: 'built' };
  }
  return { code, stamp, origin: 'built', file };
}

/** Builds a bundle for TERMINAL_RSI_WORKFLOW_BUNDLE. */
export async function writeWorkflowBundle(file: string, options: BundleOptions = {}): Promise<BundleStamp> {
  const stamp = await bundleStamp(options);
  const code = await build(options);
  if (stampText(await bundleStamp(options)) !== stampText(stamp))
    throw new UserError(`sources of the workflows were edited while ${file} was being built; build it again`);
  await write(file, code, stamp);
  return stamp;
}

async function prebuilt(file: string, wanted: BundleStamp): Promise<WorkflowBundle> {
  const found = await readBundle(file);
  if ('code' in found && stampText(found.stamp) === stampText(wanted)) {
    return { code: found.code, stamp: wanted, origin: 'file', file };
  }
  const has = 'code' in found ? `was built from ${stampText(found.stamp)}` : found.problem;
  throw new UserError(
    `TERMINAL_RSI_WORKFLOW_BUNDLE: ${file} ${has}; expected ${stampText(wanted)}, which is what this install has. ` +
      `Build it here with \`npm run bundle -- --out ${file}\`, or unset the variable.`,
  );
}

async function readBundle(file: string): Promise<{ code: string; stamp: BundleStamp } | { problem: string }> {
  let text: string;
  try {
    text = await readFile(file, 'utf8');
  } catch (error) {
    return { problem: `cannot be read (${error instanceof Error ? error.message : String(error)})` };
  }
  const end = text.indexOf('\n');
  const code = text.slice(end + 1);
  try {
    const { sha256, ...stamp } = JSON.parse(text.slice(MARK.length, end)) as BundleStamp & { sha256: string };
    if (text.startsWith(MARK) && sha256 === hashOf(code)) return { code, stamp };
  } catch {
    return { problem: 'does not begin with the stamp of a workflow bundle' };
  }
  return { problem: 'is damaged: its code does not have the SHA-256 of its stamp' };
}

async function build({ interceptorModules = [] }: BundleOptions): Promise<string> {
  const logger = new DefaultLogger('ERROR');
  const { code } = await bundleWorkflowCode({ workflowsPath, workflowInterceptorModules: [...interceptorModules], logger });
  return code;
}

async function write(file: string, code: string, stamp: BundleStamp): Promise<void> {
  await mkdir(path.dirname(file), { recursive: true });
  const temporary = `${file}.${randomUUID()}.tmp`;
  try {
    await writeFile(temporary, `${MARK}${JSON.stringify({ ...stamp, sha256: hashOf(code) })}\n${code}`);
    await rename(temporary, file);
  } finally {
    await rm(temporary, { force: true });
  }
}

/** Every edit of a workflow leaves a file of 3 MB: keeps the newest few, and with them what is being written now. */
async function prune(cache: string): Promise<void> {
  const files = (await readdir(cache)).map((name) => path.join(cache, name));
  // 0 for one that another worker has removed meanwhile.
  const modified = async (file: string): Promise<number> => (await stat(file).catch(() => undefined))?.mtimeMs ?? 0;
  const dated = await Promise.all(files.map(async (file) => ({ file, at: await modified(file) })));
  const old = dated.sort((a, b) => b.at - a.at).slice(KEPT_FILES);
  await Promise.all(old.map(({ file }) => rm(file, { force: true })));
}

async function interceptorStamp(module: string): Promise<string> {
  if (!path.isAbsolute(module))
    return `${module} ${versionOf(
      module
        .split('/')
        .slice(0, module.startsWith('@') ? 2 : 1)
        .join('/'),
    )}`;
  return `${path.relative(repoRoot, module)} ${hashOf(await readFile(module, 'utf8')).slice(0, 12)}`;
}

function versionOf(name: string): string {
  const { version } = require(`${name}/package.json`) as { version: string };
  return version;
}
function hashOf(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}
