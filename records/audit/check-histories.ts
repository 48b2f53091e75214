/**
 * The histories of today against those stored when the stages were recorded. A closed execution must be the same; the training
 * run itself, open then, must begin with what was stored. Only a reset, which makes a new execution, may go another way.
 */
import { createHash } from 'node:crypto';
import { prefixJson } from '../history.ts';
import type { StoredHistory } from '../ledger-schema.ts';
import type { AuditContext } from './context.ts';
import { firstDifference, show } from './findings.ts';

export async function checkHistories(context: AuditContext): Promise<void> {
  const { findings, source } = context;
  for (const record of context.records) {
    if (record.kind !== 'stage' && record.kind !== 'closed') continue;
    if (record.kind === 'stage' && !context.covers(record.content.stage)) continue;
    const stage = record.kind === 'stage' ? { stage: record.content.stage } : {};
    for (const stored of record.observed.histories) {
      const history = context.history(stored.runId);
      const place = `${context.place(record)}, history of ${stored.workflowId}`;
      if (!history) {
        findings.missing('histories', place, 'it is neither on the server nor stored where this audit reads');
        continue;
      }
      findings.count('histories');
      if (hashOf(stored.complete ? history.json : prefixJson(history.json, stored.events)) === stored.artifact.sha256) continue;
      const difference = await whereItDiffers(context, stored, history.json);
      if (!difference) continue;
      const { at, expected, found } = difference;
      findings.problem('histories', `${history.place}${at}`, expected, found, stage.stage);
    }
  }
  for (const history of source.histories) {
    if (history.place.startsWith('histories/') && !/^[\w-]+$/.test(history.runId))
      findings.problem('histories', history.place, 'a run id', history.runId);
    checkSequence(context, history.events, history.place);
  }
}

/** The first event that is not as it was stored; undefined where only the spelling of the JSON is another. */
async function whereItDiffers(
  context: AuditContext,
  stored: StoredHistory,
  json: string,
): Promise<{ at: string; expected: string; found: string } | undefined> {
  const said = `the history stored with SHA-256 ${stored.artifact.sha256}`;
  const before = await context.reader.readJson<{ events: { eventId: string }[] }>(stored.artifact).catch(() => undefined);
  const { events } = JSON.parse(json) as { events: { eventId: string }[] };
  if (!before) return { at: '', expected: said, found: `a history of ${events.length} events with another hash` };
  const length = Math.max(before.events.length, stored.complete ? events.length : 0);
  for (let i = 0; i < length; i++) {
    const difference = firstDifference(before.events[i], events[i]);
    if (!difference) continue;
    const id = before.events[i]?.eventId ?? events[i]?.eventId;
    return {
      at: `, event ${id}${difference.path === '' ? '' : `, ${difference.path}`}`,
      expected: `${show(difference.expected)} (${said})`,
      found: show(difference.found),
    };
  }
  return undefined;
}

/** Events are numbered without gaps, and time does not run backwards by more than clocks of several servers may differ. */
function checkSequence(context: AuditContext, events: readonly { eventId: string; eventTime: string }[], place: string): void {
  const wrong = events.findIndex(({ eventId }, i) => eventId !== String(i + 1));
  context.findings.count('histories');
  if (wrong >= 0)
    context.findings.problem('histories', `${place}, event number ${wrong + 1}`, String(wrong + 1), events[wrong]?.eventId ?? 'nothing');
}

function hashOf(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}
