/**
 * `npm run tasks -- check DIR` makes a dataset's gate file: which tasks are sound in which sandbox, and why the others are not. `npm run
 * tasks -- list DIR` only loads them. Needs no Temporal server.
 */
import { randomUUID } from 'node:crypto';
import { availableParallelism } from 'node:os';
import { mkdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { parseArgs } from 'node:util';
import pc from 'picocolors';
import { forEachConcurrently } from '../activities/concurrency.ts';
import { startingAgain } from '../activities/lost-parts.ts';
import { UserError } from '../environment/errors.ts';
import { openDataset } from '../environment/tasks/datasets.ts';
import type { DatasetEntry } from '../environment/tasks/datasets.ts';
import { checkTask, rejected } from '../environment/trial/check.ts';
import type { SandboxKind, SandboxProvider } from '../environment/types.ts';
import { gateFileOf, writeGate } from '../records/gate.ts';
import type { Gate, GateTask } from '../records/gate.ts';
import { errorText } from './error-text.ts';
import { gateTable, listTable, toolVersion } from './tasks-view.ts';

const HELP = `npm run tasks -- check DIR [options]     run nop, oracle and probes on each task, and write the gate file
npm run tasks -- list DIR [options]      load each task, and say what is wrong with it

DIR is a folder of tasks in Harbor's format, a registry.json or a dataset.toml.

Options:
  --sandbox KIND       docker (default) or embedded
  --repeats N          episodes of nop and of oracle (default: 2)
  --no-probes          do not look for tasks that can be hacked
  --include GLOB       only tasks whose name matches; repeatable
  --exclude GLOB       not the tasks whose name matches; repeatable
  --limit N            at most N tasks
  --concurrency N      tasks at a time (default: one a processor)
  --gate-file FILE     where the gate file is written (default: gate.json in DIR)
  --result-file FILE   write what was found as JSON
  --help`;

const abort = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => abort.abort(new Error(`stopped by ${signal}`)));
try {
  process.exitCode = await main(process.argv.slice(2));
} catch (error) {
  if (!abort.signal.aborted) process.stderr.write(`${pc.red('Error:')} ${errorText(error)}\n`);
  process.exitCode = abort.signal.aborted ? 130 : 1;
}
// Sandbox libraries keep timers and sockets open.
process.exit();

async function main(args: readonly string[]): Promise<number> {
  const { values, positionals } = parse(args);
  const [verb, dataset, ...more] = positionals;
  if (values.help || verb === undefined) {
    process.stdout.write(`${HELP}\n`);
    return verb === undefined && !values.help ? 1 : 0;
  }
  if (verb !== 'check' && verb !== 'list') throw new UserError(`got ${verb}; expected check or list\n\n${HELP}`);
  if (dataset === undefined || more.length > 0)
    throw new UserError(`tasks ${verb}: got ${positionals.length - 1} datasets; expected one\n\n${HELP}`);
  const { include = [], exclude = [] } = values;
  const limit = values.limit === undefined ? {} : { limit: whole('limit', values.limit) };
  const { name, tasks } = await openDataset(dataset, {
    include,
    exclude,
    ...limit,
    logger: { warn: (text) => process.stderr.write(`${pc.yellow('!')} ${text}\n`) },
  });
  const sandbox = kind(values.sandbox ?? 'docker');
  const provider = await providerOf(sandbox);
  try {
    if (verb === 'list') {
      process.stdout.write(`${listTable(tasks, (task) => provider.refusal(task))}\n`);
      return tasks.some(({ error }) => error) ? 1 : 0;
    }
    const repeats = whole('repeats', values.repeats ?? '2');
    const concurrency = whole('concurrency', values.concurrency ?? String(availableParallelism()));
    const found = await check({ name, tasks, provider, repeats, concurrency, probes: values['no-probes'] !== true });
    const gate: Gate = { schema: 'terminal-rsi/gate@1', tool: await toolVersion(), dataset: name, sandbox, repeats, tasks: found };
    const file = path.resolve(values['gate-file'] ?? gateFileOf(dataset));
    await writeGate(file, gate);
    if (values['result-file'] !== undefined) await writeResult(path.resolve(values['result-file']), gate);
    process.stdout.write(`${gateTable(gate)}\nGate file: ${file}\n`);
    return found.every(({ accepted }) => accepted) ? 0 : 2;
  } finally {
    await provider.close();
  }
}

interface Checking {
  readonly name: string;
  readonly tasks: readonly DatasetEntry[];
  readonly provider: SandboxProvider;
  readonly repeats: number;
  readonly concurrency: number;
  readonly probes: boolean;
}

async function check({ name, tasks, provider, repeats, concurrency, probes }: Checking): Promise<GateTask[]> {
  const runKey = `tasks-check-${randomUUID()}`;
  const found = new Map<string, GateTask>();
  const now = new Map<string, string>();
  const tell = (): void => {
    if (process.stderr.isTTY)
      process.stderr.write(
        `\r\u001b[K${found.size} of ${tasks.length} · ${[...now].map(([id, what]) => `${id}: ${what}`).join(', ')}`.slice(
          0,
          process.stderr.columns,
        ),
      );
  };
  try {
    await forEachConcurrently(tasks, concurrency, abort.signal, async ({ id, task, dir, error }, signal) => {
      const onProgress = (what: string): void => {
        now.set(id, what);
        tell();
      };
      const checked = task
        ? await startingAgain(signal, () =>
            checkTask({ task, source: name, provider, runKey, repeats, signal, onProgress, ...(probes ? {} : { probes: [] }) }),
          )
        : rejected({ id, checksum: '' }, [error?.message ?? `${dir}: does not load`]);
      now.delete(id);
      found.set(`${id}\0${dir}`, checked);
      if (process.stderr.isTTY) tell();
      else process.stderr.write(`${found.size} of ${tasks.length}: ${id}: ${checked.accepted ? 'accepted' : checked.reasons.join('; ')}\n`);
    });
  } finally {
    if (process.stderr.isTTY) process.stderr.write('\r\u001b[K');
    await provider.sweep(runKey);
  }
  return tasks.flatMap(({ id, dir }) => found.get(`${id}\0${dir}`) ?? []);
}

/** Loaded only where it is used: who runs embedded needs no Docker client. */
async function providerOf(sandbox: SandboxKind): Promise<SandboxProvider> {
  if (sandbox === 'embedded') return new (await import('../environment/embedded/provider.ts')).EmbeddedProvider();
  return new (await import('../environment/docker/provider.ts')).DockerProvider();
}

async function writeResult(file: string, gate: Gate): Promise<void> {
  const count = (which: (task: GateTask) => boolean): number => gate.tasks.filter(which).length;
  const counts = {
    ...{ tasks: gate.tasks.length, accepted: count(({ accepted }) => accepted), trainable: count(({ trainable }) => trainable) },
    ...{ flaky: count(({ flaky }) => flaky), hackable: count(({ hackedBy }) => hackedBy.length > 0) },
  };
  await mkdir(path.dirname(file), { recursive: true });
  await writeFile(file, `${JSON.stringify({ ...gate, counts }, null, 2)}\n`);
}

function kind(text: string): SandboxKind {
  if (text === 'docker' || text === 'embedded') return text;
  throw new UserError(`--sandbox is ${JSON.stringify(text)}; expected docker or embedded`);
}

function whole(option: string, text: string): number {
  if (!/^[1-9]\d*$/.test(text)) throw new UserError(`--${option} is ${JSON.stringify(text)}; expected a whole number of at least 1`);
  return Number(text);
}

function parse(args: readonly string[]) {
  const text = { type: 'string' } as const;
  try {
    return parseArgs({
      args: [...args],
      strict: true,
      allowPositionals: true,
      options: {
        ...{ sandbox: text, repeats: text, limit: text, concurrency: text, 'gate-file': text, 'result-file': text },
        include: { type: 'string', multiple: true },
        exclude: { type: 'string', multiple: true },
        'no-probes': { type: 'boolean' },
        help: { type: 'boolean', short: 'h' },
      },
    });
  } catch (error) {
    throw new UserError(`${error instanceof Error ? error.message : String(error)}\n\n${HELP}`);
  }
}
