/** What became of a stage's successes on their way to runbooks, as counts that can be summed over tasks and groups of tasks. */
export interface RewriteCounts {
  readonly successes: number;
  readonly kept: number;
  /** Fresh executions spent on minimising and re-running. */
  readonly executions: number;
  /** Screen or drop rule → count. */
  readonly dropped: Readonly<Record<string, number>>;
}

export function addRewriteCounts(counts: readonly RewriteCounts[]): RewriteCounts {
  const dropped: Record<string, number> = {};
  for (const one of counts) for (const [rule, count] of Object.entries(one.dropped)) dropped[rule] = (dropped[rule] ?? 0) + count;
  const sum = (of: (one: RewriteCounts) => number): number => counts.reduce((total, one) => total + of(one), 0);
  return { successes: sum((c) => c.successes), kept: sum((c) => c.kept), executions: sum((c) => c.executions), dropped };
}
