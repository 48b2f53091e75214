/**
 * What stands on our containers, for whoever finds them: the labels are the only registry, because a process's memory dies with it.
 * Labels cannot be changed later, so a lease is not renewed: it is long enough for all that the task allows, and says from when on an
 * owner that cannot be asked counts as gone.
 */
import { createHash, randomUUID } from 'node:crypto';
import { z } from 'zod';
import { fate, identify } from '../../workers/process-identity.ts';
import type { SandboxLabels, Task, TaskPhase } from '../types.ts';

export const label = {
  run: 'terminal-rsi.run',
  episode: 'terminal-rsi.episode',
  purpose: 'terminal-rsi.purpose',
  /** Host, process id and start of the process: an id alone is given to other processes later. */
  owner: 'terminal-rsi.owner',
  /** Tells this start from another with the same name. */
  attempt: 'terminal-rsi.attempt',
  /** Unix seconds. */
  lease: 'terminal-rsi.lease',
  /** `<workflow id> <run id>` of the Temporal workflow. */
  workflow: 'terminal-rsi.workflow',
} as const;

/** This process. */
export const owner = JSON.stringify(identify(process.pid) ?? {});

export type OwnerFate = ReturnType<typeof fate>;

/** What is known of the process that a label names. */
export function ownerFate(held = ''): OwnerFate {
  const known = ownerSchema.safeParse(held);
  return known.success ? fate(known.data) : 'unknown';
}
const ownerSchema = z
  .string()
  .transform((text, context) => {
    try {
      return JSON.parse(text) as unknown;
    } catch {
      context.addIssue('expected JSON');
      return z.NEVER;
    }
  })
  .pipe(z.object({ host: z.string(), pid: z.number(), start: z.string() }));

/** A container's name before any number: it follows from the labels, so that whoever starts the same again finds what is left. */
export function containerName({ runKey, episodeId, purpose }: SandboxLabels): string {
  const digest = createHash('sha256').update([runKey, episodeId, purpose].join('\0')).digest('hex').slice(0, 20);
  return `terminal-rsi-${purpose}-${digest}`;
}

export function labelsOf(task: Task, { runKey, episodeId, purpose, workflow }: SandboxLabels): Record<string, string> {
  return {
    [label.run]: runKey,
    [label.episode]: episodeId,
    [label.purpose]: purpose,
    [label.owner]: owner,
    [label.attempt]: randomUUID(),
    [label.lease]: String(Math.ceil(Date.now() / 1000) + leaseSec(task)),
    ...(workflow ? { [label.workflow]: `${workflow.workflowId} ${workflow.runId}` } : {}),
  };
}

/** For a phase without a time limit. */
const unlimitedSec = 24 * 3600;
/** Transfers, retries of the verifier, a slow engine. */
const slackSec = 3600;

/** Seconds after which nobody can be working on the task any more. */
function leaseSec(task: Task): number {
  const phaseSec = ({ agentTimeoutSec, verifierTimeoutSec }: TaskPhase): number => {
    return Math.min(agentTimeoutSec, unlimitedSec) + 2 * Math.min(verifierTimeoutSec, unlimitedSec);
  };
  const phases: readonly TaskPhase[] = task.steps ?? [task];
  return Math.ceil(
    phases.reduce((sum, phase) => sum + phaseSec(phase), slackSec + Math.min(task.environment.buildTimeoutSec, unlimitedSec)),
  );
}
