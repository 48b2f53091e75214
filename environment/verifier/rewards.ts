/**
 * Reads a verifier's reward files as Harbor does: reward.json where it exists, else reward.txt; everything malformed has Harbor's type.
 *
 * `compat` takes what other readers of the same files accept, for task sets written for those: where reward.json is malformed a good
 * reward.txt beside it counts, a bare number in reward.json is the reward, and entries that are no finite numbers are left out as long
 * as one number remains. What was read is recorded (file and hash) in both.
 */
import { createHash } from 'node:crypto';
import type { CheckResult, FileTree, Verdict } from '../types.ts';
import { VerifierFault } from './faults.ts';

export type RewardReading = 'strict' | 'compat';

export interface Rewards {
  /** By name, in the file's order. At least one. */
  readonly values: ReadonlyMap<string, number>;
  readonly source: NonNullable<Verdict['source']>;
}

const parsers = { 'reward.json': parseRewardJson, 'reward.txt': parseRewardText } as const;

/**
 * @param files /logs/verifier
 * @param place the task, for messages
 * @throws VerifierFault
 */
export function readRewards(files: FileTree, place: string, reading: RewardReading = 'strict'): Rewards {
  let fault: VerifierFault | undefined;
  for (const file of ['reward.json', 'reward.txt'] as const) {
    const bytes = files.get(file)?.data;
    if (bytes === undefined) continue;
    try {
      if (bytes.length === 0) throw new VerifierFault('RewardFileEmptyError', `${file} of ${place} is empty`);
      const values = parsers[file](decode(bytes, file), reading);
      return { values, source: { file, sha256: createHash('sha256').update(bytes).digest('hex') } };
    } catch (error) {
      if (!(error instanceof VerifierFault) || reading === 'strict') throw error;
      fault ??= error;
    }
  }
  if (fault) throw fault;
  const log = files.get('test-stdout.txt')?.data;
  const tail = log === undefined ? '' : Buffer.from(log).toString('utf8').trim().slice(-300);
  throw new VerifierFault(
    'RewardFileNotFoundError',
    `the tests of ${place} wrote neither reward.json nor reward.txt in /logs/verifier; end of their output: ${tail}`,
  );
}

/** Harbor: an object of name → finite number; JSON booleans count as 0 and 1. */
export function parseRewardJson(text: string, reading: RewardReading = 'strict'): Map<string, number> {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw parseFault(`reward.json is not JSON: ${(error as Error).message}`);
  }
  const shown = text.trim().slice(0, 60);
  if (typeof value === 'number' || typeof value === 'boolean') {
    if (reading === 'compat' && Number.isFinite(Number(value))) return new Map([['reward', Number(value)]]);
    // Harbor's parser lets a bare number pass, and its result model then refuses it.
    throw new VerifierFault('ValidationError', `reward.json is ${shown}; expected an object of numbers`);
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw parseFault(`reward.json is ${shown}; expected an object of numbers`);
  const rewards = new Map<string, number>();
  for (const [name, reward] of Object.entries(value)) {
    const usable = (typeof reward === 'number' && Number.isFinite(reward)) || typeof reward === 'boolean';
    if (usable) rewards.set(name, Number(reward));
    else if (reading === 'strict') throw parseFault(`reward.json: ${name} is ${JSON.stringify(reward)}; expected a finite number`);
  }
  // Harbor takes {} for "no rewards"; without a number there is no verdict.
  if (rewards.size === 0) throw new VerifierFault('NoRewardError', `reward.json is ${shown}; expected at least one number`);
  return rewards;
}

/** Harbor: the whole file through Python's float(); NaN and infinities are errors. */
export function parseRewardText(text: string): Map<string, number> {
  const trimmed = text.trim();
  if (!/^[+-]?(\d+(_\d+)*\.?(\d+(_\d+)*)?|\.\d+(_\d+)*)([eE][+-]?\d+(_\d+)*)?$/.test(trimmed))
    throw parseFault(`reward.txt is ${JSON.stringify(trimmed.slice(0, 60))}; expected one number`);
  const value = Number(trimmed.replaceAll('_', ''));
  if (!Number.isFinite(value)) throw parseFault(`reward.txt is ${trimmed.slice(0, 60)}; expected a finite number`);
  return new Map([['reward', value]]);
}

/** The verdict of what the tests wrote. `checks`: their own by name (CTRF), where they wrote any. */
export function verdictOf({ values, source }: Rewards, checks: readonly CheckResult[] | undefined): Verdict {
  const reward = strictReward(values);
  return {
    outcome: reward >= 1 ? 'passed' : 'failed',
    checks: checks ?? [...values].map(([name, value]) => ({ name, passed: value >= 1 })),
    reward,
    ...(values.size > 1 || !values.has('reward') ? { rewards: Object.fromEntries(values) } : {}),
    source,
  };
}

/** The key `reward`; where there is none, the smallest of all, so that strict success needs every one. */
function strictReward(rewards: ReadonlyMap<string, number>): number {
  return rewards.get('reward') ?? Math.min(...rewards.values());
}

function decode(bytes: Uint8Array, file: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw parseFault(`${file} is not UTF-8 text`);
  }
}

function parseFault(message: string): VerifierFault {
  return new VerifierFault('VerifierOutputParseError', message);
}
