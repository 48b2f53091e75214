/**
 * What is brought into a sandbox so that the tests run as they are written, without a network and without what the agent planted:
 *
 *  - commands that stand in for `uv`, `uvx`, `pip`, `apt-get` and for the download of uv's installer, with the packages they would fetch
 *    (kit/kit.py, kit-wheels.ts), where a test script uses them;
 *  - a pytest that loads no plugin and no start-up file which appeared while the agent worked, where the tests use pytest;
 *  - in the agent's own sandbox, the image's own commands before others of the same name (kit/prepare.sh).
 *
 * A test run whose script wanted what the kit lacks says nothing about the agent: it has no verdict (VerifierKitError).
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { quote } from '../tasks/dockerfile.ts';
import type { FileEntry, FileTree, Sandbox, Task } from '../types.ts';
import { VerifierFault } from './faults.ts';
import { kitPackages, kitWheels } from './kit-wheels.ts';

/** In the sandbox. */
export const kitFolder = '/opt/terminal-rsi-verifier';

export interface TestNeeds {
  /** A script installs something: uv, pip, apt-get. */
  readonly tools: boolean;
  /** The tests call pytest. */
  readonly pytest: boolean;
}

const installs = /\buvx?\b|astral\.sh|\bpip3? install\b|-m pip\b|\bapt(-get)? /;
const maxScanBytes = 256 * 1024;

/** What the tests' scripts ask for, by their text. */
export function testNeeds(tests: FileTree): TestNeeds {
  let tools = false;
  let pytest = false;
  for (const [path, { data }] of tests) {
    if (data.length > maxScanBytes) continue;
    const text = Buffer.from(data).toString('latin1');
    pytest ||= /\bpytest\b/.test(text);
    tools ||= (path.endsWith('.sh') || /^#!.*\b(ba|da)?sh\b/.test(text)) && installs.test(text);
  }
  return { tools, pytest };
}

export interface KitOptions {
  readonly task: Task;
  readonly sandbox: Sandbox;
  /** The agent worked in this sandbox. */
  readonly shared: boolean;
  readonly signal?: AbortSignal;
}

/** How the tests are started. */
export interface TestShell {
  readonly env: Readonly<Record<string, string>>;
  /** Shell text before the command. */
  readonly setUp: string;
  /** Something was put into the sandbox. */
  readonly kit: boolean;
}

/** Variables that make programs read files of someone's choice before they do anything. */
const cleared = { BASH_ENV: '', ENV: '', LD_PRELOAD: '', PYTHONSTARTUP: '', PYTHONHOME: '' };
const quietPython = { PYTHONDONTWRITEBYTECODE: '1', PYTHONNOUSERSITE: '1' };
/** No cache that a planted plugin or last run could fill, and no conftest.py from above /tests. */
const pytestOptions = { PYTEST_ADDOPTS: '-p no:cacheprovider --confcutdir=/tests' };

/**
 * Brings what the tests need. Quick, and nothing at all in a fresh sandbox, for tests that need none of it.
 * @throws VerifierFault VerifierKitError where the sandbox cannot have it, InfrastructureError when the sandbox or PyPI fails
 */
export async function bringKit(options: KitOptions, run: (command: string) => Promise<void>): Promise<TestShell> {
  const { task, sandbox, shared } = options;
  const needs = testNeeds(task.tests);
  const embedded = sandbox.kind === 'embedded';
  if (needs.tools && embedded)
    throw new VerifierFault(
      'VerifierKitError',
      `the tests of ${task.id} install packages, which the embedded sandbox cannot; use the docker sandbox`,
    );
  const env = { ...cleared, ...quietPython, ...(needs.pytest ? pytestOptions : {}) };
  // Commands of the embedded sandbox are its own, whatever files lie on PATH.
  if (embedded || (!shared && !needs.tools && !needs.pytest)) return { env, setUp: '', kit: false };
  await run(
    `rm -rf ${kitFolder}; [ ! -e ${kitFolder} ] && [ ! -L ${kitFolder} ] && { [ ! -L /opt ] || rm -f /opt; } && mkdir -p ${kitFolder}`,
  );
  await sandbox.upload(await kitFiles(task, needs), kitFolder);
  const flag = (on: boolean): string => (on ? '1' : '0');
  const words = [kitFolder, flag(shared), flag(needs.pytest), flag(needs.tools), task.verifierUser ?? ''];
  await run(`sh ${kitFolder}/prepare.sh ${words.map(quote).join(' ')}`);
  const own = `${kitFolder}/bin:${kitFolder}/state/bin`;
  const modules = `${kitFolder}/guard:${kitFolder}/state/site`;
  return {
    env,
    setUp: `PATH="${own}:$PATH" PYTHONPATH="${modules}\${PYTHONPATH:+:$PYTHONPATH}"; export PATH PYTHONPATH; `,
    kit: true,
  };
}

const parts = ['base', 'packages', 'pytests', 'system', 'tools', '__init__'].map((name) => `terminal_rsi_kit/${name}.py`);
const source = (name: string): [string, FileEntry] => [name, { data: readFileSync(join(import.meta.dirname, 'kit', name)), mode: 0o644 }];

async function kitFiles(task: Task, needs: TestNeeds): Promise<FileTree> {
  const files: FileTree = new Map(['prepare.sh', 'kit.py', 'guard/sitecustomize.py', ...parts].map(source));
  const network = (task.verifierNetwork ?? task.environment.network).mode === 'public';
  const packages = needs.tools ? kitPackages : {};
  files.set('index.json', { data: Buffer.from(JSON.stringify({ network, packages })), mode: 0o644 });
  if (needs.tools) for (const [file, data] of await kitWheels()) files.set(`wheels/${file}`, { data, mode: 0o644 });
  return files;
}

export interface KitReport {
  /** One a line: packages and commands that the script asked for and did not get. */
  readonly missing: string;
  /** One a line: what stood in for what. */
  readonly notes: string;
}

/** What the tests asked of the kit. */
export async function readKitReport(sandbox: Sandbox): Promise<KitReport> {
  const text = async (name: string): Promise<string> =>
    Buffer.from((await sandbox.readFile(`${kitFolder}/state/${name}`)) ?? '').toString('utf8');
  return { missing: (await text('missing')).trim(), notes: await text('notes') };
}

/** @throws VerifierFault naming what was not there */
export function requireComplete(task: Task, { missing }: KitReport): void {
  if (missing === '') return;
  const things = [...new Set(missing.split('\n'))].join(', ').slice(0, 500);
  throw new VerifierFault('VerifierKitError', `the tests of ${task.id} need what the verifier's kit lacks: ${things}`);
}
