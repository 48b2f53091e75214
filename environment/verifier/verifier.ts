/**
 * Judges an episode in a sandbox the agent never touched: the task's initial environment, the workdir's content replaced
 * by the episode's snapshot, then the tests. What the agent planted in /tests or /logs, or left running, is not there.
 * Rewards are read as Harbor reads them (reward.json before reward.txt), with Harbor's names for what can go wrong.
 * Whatever is wrong with the verifier is `no-verdict`, never a score of 0.
 */
import { quote } from '../tasks/dockerfile.ts';
import { InfrastructureError } from '../errors.ts';
import { snapshotTree } from './snapshot.ts';
import type { CheckResult, Sandbox, SandboxLabels, SandboxProvider, Task, Verdict, WorkspaceSnapshot } from '../types.ts';

export interface VerifyOptions {
  readonly task: Task;
  readonly snapshot: WorkspaceSnapshot;
  readonly provider: SandboxProvider;
  readonly labels: SandboxLabels;
  readonly signal?: AbortSignal;
}

/** Time to empty and refill the workdir; not part of the tests' own time. */
const prepareTimeoutSec = 60;
const logs = '/logs/verifier';
const testCommand = `bash -c "(/tests/test.sh) > ${logs}/test-stdout.txt 2>&1"`;

/** A verifier's fault, with the name Harbor gives it. */
class VerifierFault extends Error {
  readonly type: string;

  constructor(type: string, message: string) {
    super(message);
    this.type = type;
  }
}

/**
 * @returns `passed` iff the reward is at least 1
 * @throws InfrastructureError when the sandbox fails (retry in a fresh one), TaskError when it cannot run the task
 */
export async function verify(options: VerifyOptions): Promise<Verdict> {
  const { task, snapshot, provider, labels, signal } = options;
  const sandbox = await provider.start(task, labels, signal);
  try {
    await prepare(sandbox, task, snapshot, signal);
    const run = await sandbox.exec(testCommand, {
      timeoutSec: task.verifierTimeoutSec,
      env: task.verifierEnv,
      ...(signal ? { signal } : {}),
    });
    if (run.timedOut)
      throw new VerifierFault('VerifierTimeoutError', `tests/test.sh of ${task.id} ran longer than ${task.verifierTimeoutSec} s`);
    const rewards = await readRewards(sandbox, task);
    const reward = strictReward(rewards);
    return {
      outcome: reward >= 1 ? 'passed' : 'failed',
      checks: (await readCtrf(sandbox)) ?? [...rewards].map(([name, value]) => ({ name, passed: value >= 1 })),
      reward,
    };
  } catch (error) {
    if (!(error instanceof VerifierFault)) throw error;
    return { outcome: 'no-verdict', checks: [], error: { type: error.type, message: error.message } };
  } finally {
    await sandbox.close();
  }
}

async function prepare(sandbox: Sandbox, task: Task, snapshot: WorkspaceSnapshot, signal?: AbortSignal): Promise<void> {
  const empty = async (command: string): Promise<void> => {
    const result = await sandbox.exec(command, { timeoutSec: prepareTimeoutSec, ...(signal ? { signal } : {}) });
    if (result.exitCode !== 0)
      throw new InfrastructureError(
        `${task.id}: the verifier's sandbox could not be prepared: ${command} exited with ${result.exitCode}: ${result.stderr.trim()}`,
      );
  };
  const directories = (snapshot.emptyDirectories ?? []).map(quote).join(' ');
  await empty('rm -rf ./* ./.[!.]* ./..?*');
  await sandbox.upload(snapshotTree(snapshot), task.workdir);
  await empty(`${directories === '' ? '' : `mkdir -p ${directories} && `}rm -rf /tests ${logs} && mkdir -p ${logs}`);
  await sandbox.upload(task.tests, '/tests');
  await empty('chmod +x /tests/test.sh');
}

/** The rewards by name, in the file's order. */
async function readRewards(sandbox: Sandbox, task: Task): Promise<Map<string, number>> {
  for (const [file, parse] of [
    ['reward.json', parseRewardJson],
    ['reward.txt', parseRewardText],
  ] as const) {
    const bytes = await sandbox.readFile(`${logs}/${file}`);
    if (bytes === undefined) continue;
    if (bytes.length === 0) throw new VerifierFault('RewardFileEmptyError', `${file} of ${task.id} is empty`);
    return parse(Buffer.from(bytes).toString('utf8'));
  }
  const log = await sandbox.readFile(`${logs}/test-stdout.txt`);
  const tail = log === undefined ? '' : Buffer.from(log).toString('utf8').trim().slice(-300);
  throw new VerifierFault(
    'RewardFileNotFoundError',
    `the tests of ${task.id} wrote neither reward.json nor reward.txt in ${logs}; end of their output: ${tail}`,
  );
}

/** Harbor: an object of name → number; JSON booleans count as 0 and 1. */
export function parseRewardJson(text: string): Map<string, number> {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw parseFault(`reward.json is not JSON: ${(error as Error).message}`);
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw parseFault(`reward.json is ${text.trim().slice(0, 60)}; expected an object of numbers`);
  const rewards = new Map<string, number>();
  for (const [name, reward] of Object.entries(value)) {
    if (typeof reward !== 'number' && typeof reward !== 'boolean')
      throw parseFault(`reward.json: ${name} is ${JSON.stringify(reward)}; expected a number`);
    rewards.set(name, Number(reward));
  }
  // Harbor takes {} for "no rewards"; without a number there is no verdict.
  if (rewards.size === 0) throw parseFault('reward.json holds no reward; expected at least one number');
  return rewards;
}

/** Harbor: the whole file through Python's float(); NaN and infinities are errors. */
export function parseRewardText(text: string): Map<string, number> {
  const trimmed = text.trim();
  if (!/^[+-]?(\d+(_\d+)*\.?(\d+(_\d+)*)?|\.\d+(_\d+)*)([eE][+-]?\d+)?$/.test(trimmed))
    throw parseFault(`reward.txt is ${JSON.stringify(trimmed.slice(0, 60))}; expected one number`);
  const value = Number(trimmed.replaceAll('_', ''));
  if (!Number.isFinite(value)) throw parseFault(`reward.txt is ${trimmed.slice(0, 60)}; expected a finite number`);
  return new Map([['reward', value]]);
}

function parseFault(message: string): VerifierFault {
  return new VerifierFault('VerifierOutputParseError', message);
}

/** The key `reward`; where there is none, the smallest of all, so that strict success needs every one. */
function strictReward(rewards: ReadonlyMap<string, number>): number {
  return rewards.get('reward') ?? Math.min(...rewards.values());
}

/** CTRF tests as checks; undefined where there is no usable ctrf.json. Harbor never reads it, so a broken one costs detail, not the verdict. */
async function readCtrf(sandbox: Sandbox): Promise<CheckResult[] | undefined> {
  const bytes = await sandbox.readFile(`${logs}/ctrf.json`);
  return bytes === undefined ? undefined : parseCtrf(Buffer.from(bytes).toString('utf8'));
}

/** Skipped and pending tests say nothing and are left out; equal names are told apart by a running number. */
export function parseCtrf(text: string): CheckResult[] | undefined {
  let tests: unknown;
  try {
    tests = (JSON.parse(text) as { results?: { tests?: unknown } } | null)?.results?.tests;
  } catch {
    return undefined;
  }
  if (!Array.isArray(tests)) return undefined;
  const checks: CheckResult[] = [];
  const seen = new Map<string, number>();
  for (const test of tests as unknown[]) {
    const { name, status } = (test ?? {}) as { name?: unknown; status?: unknown };
    if (typeof name !== 'string' || typeof status !== 'string') return undefined;
    if (status === 'skipped' || status === 'pending') continue;
    const count = (seen.get(name) ?? 0) + 1;
    seen.set(name, count);
    checks.push({ name: count === 1 ? name : `${name} #${count}`, passed: status === 'passed' });
  }
  return checks.length > 0 ? checks : undefined;
}
