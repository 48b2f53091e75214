/** The checks of a CTRF report (ctrf.json): a convention of test scripts that Harbor never reads, so a broken one costs detail, not the verdict. */
import type { CheckResult, FileTree } from '../types.ts';

/**
 * @param files /logs/verifier
 * @returns undefined where there is no usable ctrf.json
 */
export function readCtrf(files: FileTree): CheckResult[] | undefined {
  const bytes = files.get('ctrf.json')?.data;
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
