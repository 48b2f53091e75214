/** What an audit finds: how much was checked, what does not hold, and what was not there to be checked. */
import { canonicalJson } from '../canonical-json.ts';

/** The checks in the order in which they are made and told. */
export const CHECKS = {
  archive: 'members of the archive against its manifest',
  ledger: 'ledger: each record against its hash, and the chain',
  artifacts: 'artifacts: bytes against the hashes that name them',
  lineage: 'lineage: what a stage began with against what the stages before it made',
  counts: 'counts, drops and seeds, from the episodes and verdicts',
  evaluation: 'evaluation tables, from the verdicts',
  decisions: 'adoption decisions, from the evaluation tables',
  rewards: 'rewards that PPO trained on, from the verdicts',
  histories: 'histories: those of today against those stored in the ledger',
  events: 'what activities were given and returned, against ledger and artifacts',
  replay: "replay of the histories against today's workflow code",
} as const;
export type CheckName = keyof typeof CHECKS;

/** One thing that does not hold. */
export interface Problem {
  readonly check: CheckName;
  readonly stage?: string;
  /** File, member of the archive, artifact or event. */
  readonly place: string;
  readonly expected: string;
  readonly found: string;
}
/** Something that the audit could not look at. */
export interface Absence {
  readonly check: CheckName;
  readonly place: string;
  readonly why: string;
}

export class Findings {
  readonly problems: Problem[] = [];
  readonly absent: Absence[] = [];
  /** What a reader should know, and what breaks nothing. */
  readonly notes: string[] = [];
  readonly checked = new Map<CheckName, number>();

  /** Counts one thing that was looked at. */
  count(check: CheckName, number = 1): void {
    this.checked.set(check, (this.checked.get(check) ?? 0) + number);
  }

  problem(check: CheckName, place: string, expected: string, found: string, stage?: string): void {
    const problem = { check, place, expected, found, ...(stage === undefined ? {} : { stage }) };
    // Several ways may lead to the same broken thing; it is told once.
    if (!this.problems.some((known) => canonicalJson(known) === canonicalJson(problem))) this.problems.push(problem);
  }

  missing(check: CheckName, place: string, why: string): void {
    if (!this.absent.some((known) => known.check === check && known.place === place)) this.absent.push({ check, place, why });
  }

  note(text: string): void {
    if (!this.notes.includes(text)) this.notes.push(text);
  }

  /** Counts a comparison, and tells where two values differ: the first field of an object or list that does. */
  equal(check: CheckName, place: string, expected: unknown, found: unknown, stage?: string): boolean {
    this.count(check);
    const difference = firstDifference(expected, found);
    if (!difference) return true;
    const at = difference.path === '' ? place : `${place}, ${difference.path}`;
    this.problem(check, at, show(difference.expected), show(difference.found), stage);
    return false;
  }
}

interface Difference {
  readonly path: string;
  readonly expected: unknown;
  readonly found: unknown;
}

/** Where two JSON values first differ; undefined where they are equal. Properties that are undefined count as absent. */
export function firstDifference(expected: unknown, found: unknown, path = ''): Difference | undefined {
  if (Array.isArray(expected) && Array.isArray(found)) {
    for (let i = 0; i < Math.max(expected.length, found.length); i++) {
      const difference = firstDifference(expected[i] as unknown, found[i] as unknown, `${path}[${i}]`);
      if (difference) return difference;
    }
    return undefined;
  }
  if (isObject(expected) && isObject(found)) {
    // Of two things with hashes, the hashes tell which they are.
    for (const key of new Set(['sha256', 'hash', ...Object.keys(expected), ...Object.keys(found)])) {
      const difference = firstDifference(expected[key], found[key], path === '' ? key : `${path}.${key}`);
      if (difference) return difference;
    }
    return undefined;
  }
  return Object.is(expected, found) ? undefined : { path, expected, found };
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

const LONGEST = 300;
export function show(value: unknown): string {
  if (value === undefined) return 'nothing';
  const text = typeof value === 'string' ? value : JSON.stringify(value);
  return text.length > LONGEST ? `${text.slice(0, LONGEST)}…` : text;
}
