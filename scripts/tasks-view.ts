/** What `npm run tasks` prints: the tasks of a dataset as they load, and the gate's findings. */
import Table from 'cli-table3';
import { createRequire } from 'node:module';
import pc from 'picocolors';
import { sourceHash } from '../activities/code-version.ts';
import type { DatasetEntry } from '../environment/tasks/datasets.ts';
import type { Task } from '../environment/types.ts';
import type { Gate, GateVerdict } from '../records/gate.ts';

/** Of this program, for a gate file: the sources that decide its verdicts. */
export async function toolVersion(): Promise<Gate['tool']> {
  const { version } = createRequire(import.meta.url)('../package.json') as { version: string };
  return { version, code: await sourceHash(['environment', 'method']) };
}

/** `refusal`: why the sandbox cannot run a task. */
export function listTable(tasks: readonly DatasetEntry[], refusal: (task: Task) => string | undefined): string {
  const table = tableOf(['task', 'steps', 'verifier', 'network', 'problem']);
  const problems = tasks.map(({ id, task, error }) => {
    const problem = task ? refusal(task) : error?.message;
    table.push([
      id,
      task ? (task.steps?.length ?? 1) : '',
      task ? (task.verifierMode ?? 'shared') : '',
      task ? task.environment.network.mode : '',
      problem === undefined ? '' : pc.red('yes'),
    ]);
    return problem === undefined ? [] : [`${pc.bold(id)}: ${problem}`];
  });
  return [table.toString(), `${tasks.length} tasks`, ...problems.flat()].join('\n');
}

export function gateTable({ tasks, sandbox, repeats }: Gate): string {
  const table = tableOf(['task', 'gate', 'nop', 'oracle', 'valid checks', 'verifier, s']);
  for (const { id, accepted, trainable, verdicts, validChecks } of tasks) {
    const state = accepted ? (trainable ? pc.green('accepted') : 'not for training') : pc.red('rejected');
    const slowest = Math.max(0, ...[...verdicts.nop, ...verdicts.oracle].map(({ seconds }) => seconds));
    table.push([id, state, outcomes(verdicts.nop), outcomes(verdicts.oracle), validChecks.length, slowest.toFixed(1)]);
  }
  const remarks = tasks.flatMap(({ id, reasons, notes }) => [...reasons, ...notes].map((text) => `${pc.bold(id)}: ${text}`));
  const count = (which: (task: Gate['tasks'][number]) => boolean): number => tasks.filter(which).length;
  const sums = [
    `${tasks.length} tasks in ${sandbox}, ${repeats} repeats`,
    `${count(({ accepted }) => accepted)} accepted`,
    `${count(({ trainable }) => trainable)} for training`,
    `${count(({ flaky }) => flaky)} flaky`,
    `${count(({ hackedBy }) => hackedBy.length > 0)} hackable`,
  ];
  return [table.toString(), ...remarks, pc.bold(sums.join(' · '))].join('\n');
}

/** `failed ×2`, `passed, failed`. */
function outcomes(verdicts: readonly GateVerdict[]): string {
  const all = verdicts.map(({ outcome, error }) => (outcome === 'no-verdict' ? (error ?? outcome) : outcome));
  const [first] = all;
  if (first === undefined) return '–';
  return all.every((outcome) => outcome === first) ? `${first}${all.length > 1 ? ` ×${all.length}` : ''}` : all.join(', ');
}

function tableOf(head: readonly string[]): Table.Table {
  return new Table({ head: [...head], style: { head: [], border: [], compact: true } });
}
