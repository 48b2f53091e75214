/** Histories without what belongs to the machine that recorded them. Replay does not look at any of it. */
import { homedir, hostname, tmpdir } from 'node:os';
import { parseHistory } from '../../records/history.ts';
import type { WorkflowHistory } from '../../records/history.ts';
import { repoRoot } from '../../records/paths.ts';

/** Names of processes and of their own queues, and ids that only the server uses. They are also what compresses worst. */
const REPLACED: Readonly<Record<string, string>> = { identity: 'worker', requestId: 'request', taskId: '1' };

/**
 * Replaces the names of processes and queues and the repository's place in stack traces.
 * @throws Error when something of this machine is left, payloads included.
 */
export function neutral({ workflowId, runId, json }: WorkflowHistory): WorkflowHistory {
  const history = JSON.parse(json, (key, value: unknown) => {
    if (typeof value !== 'string') return isStickyQueue(value) ? { ...value, name: 'sticky' } : value;
    return REPLACED[key] ?? value.replaceAll(repoRoot, '/repository');
  }) as unknown;
  const text = JSON.stringify(history);
  const machine = [repoRoot, hostname(), `${homedir()}/`, `${tmpdir()}/`];
  const left = machine.filter((word) => readable(text).some((part) => new RegExp(`(?<!\\w)${escaped(word)}(?!\\w)`).test(part)));
  if (left.length > 0) throw new Error(`the history of ${workflowId} still names ${left.join(', ')}`);
  return parseHistory({ workflowId, runId }, text);
}

function isStickyQueue(value: unknown): value is { name: string } {
  return (value as { kind?: unknown } | null)?.kind === 'TASK_QUEUE_KIND_STICKY';
}
/** The text, and its payloads, which are base64 under the key `data`. */
function readable(text: string): string[] {
  return [text, ...[...text.matchAll(/"data":"([A-Za-z0-9+/=]*)"/g)].map(([, data = '']) => Buffer.from(data, 'base64').toString())];
}
function escaped(word: string): string {
  return word.replaceAll(/[.*+?^${}()|[\]\\/]/g, '\\$&');
}
