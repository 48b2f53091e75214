/**
 * A reporter for node:test that writes one JSON line per finished test: { state, name, file, reason }. The numbers that `npm test` prints are
 * counted from these lines. Suites (describe) are groups, not tests: they count only when they fail without a failed test inside, as a
 * broken hook does.
 */

/** @param {AsyncIterable<{ type: string, data: any }>} events of node:test */
export default async function* count(events) {
  for await (const { type, data } of events) {
    if (type !== 'test:pass' && type !== 'test:fail') continue;
    const isSuite = data.details?.type === 'suite';
    const failed = type === 'test:fail' && data.todo === undefined;
    if (isSuite && !(failed && data.details.error?.failureType !== 'subtestsFailed')) continue;
    const skipped = data.skip !== undefined || (type === 'test:fail' && data.todo !== undefined);
    const given = data.skip ?? data.todo;
    const reason = typeof given === 'string' && given !== '' ? given : 'no reason given';
    const state = failed ? 'failed' : skipped ? 'skipped' : 'passed';
    yield `${JSON.stringify({ state, name: data.name, file: data.file ?? null, ...(state === 'skipped' && { reason }) })}\n`;
  }
}
