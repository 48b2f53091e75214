/**
 * What the three commands share: bring up, do something, take down; Ctrl-C once stops gracefully, twice at once; errors of
 * people are printed without a stack.
 */
import path from 'node:path';
import pc from 'picocolors';
import type { SandboxKind } from '../../environment/types.ts';
import { terminalTable } from '../../records/table.ts';
import type { TrainingRunResult } from '../../workflows/contract.ts';
import { tableStage } from '../../workflows/table.ts';
import { errorText } from '../error-text.ts';
import { LiveTable } from '../live-table.ts';
import { openRuns, writeResultFile, type RunOutcome, type StartedRun } from './run.ts';
import { bringUp, type Messages, type Stack } from './stack.ts';

export interface Command {
  readonly table: LiveTable;
  readonly messages: Messages;
  /** Aborted by the first Ctrl-C or SIGTERM. */
  readonly signal: AbortSignal;
  /** Server and workers; without `gpu` no worker that trains and samples. */
  readonly up: (sandbox: SandboxKind | undefined, needs?: { readonly gpu: boolean }) => Promise<Stack>;
}

/** The person stopped the command before it had come up. */
class Stopped extends Error {}

/** Runs a command to its exit status and ends the process. What it brought up is taken down in every outcome. */
export async function runCommand(body: (command: Command) => Promise<number>): Promise<never> {
  const table = new LiveTable(process.stdout);
  const messages: Messages = { info: (message) => table.log(pc.dim(message)), warn: (message) => table.log(pc.yellow(`! ${message}`)) };
  const abort = new AbortController();
  let stack: Stack | undefined;
  let kill: () => void = () => undefined;
  let signals = 0;
  const onSignal = (signal: NodeJS.Signals): void => {
    signals++;
    if (signals > 1) {
      kill();
      process.exit(130);
    }
    table.log(`${signal === 'SIGINT' ? 'Ctrl-C' : signal}: stopping (once more to stop at once) …`);
    abort.abort();
  };
  process.on('SIGINT', onSignal).on('SIGTERM', onSignal).on('SIGHUP', onSignal);
  let status = 1;
  try {
    const up: Command['up'] = async (sandbox, { gpu } = { gpu: true }) => {
      stack = await bringUp(messages, { sandbox, gpu }, abort.signal, (now) => (kill = now));
      if (abort.signal.aborted) throw new Stopped();
      return stack;
    };
    status = await body({ table, messages, signal: abort.signal, up });
  } catch (error) {
    table.finish();
    if (error instanceof Stopped) status = 130;
    else process.stderr.write(`${pc.red('Error:')} ${errorText(error)}\n`);
  } finally {
    await stack?.stop();
  }
  process.exit(status);
}

/** Where everything is, for the end of the start-up. */
export function printPlaces(messages: Messages, stack: Stack): void {
  messages.info(`Temporal UI: ${stack.uiUrl ?? `of the server at ${stack.address}`}`);
  messages.info(`Reports:     ${path.join(stack.data, 'runs')} (newest: ${path.join(stack.data, 'latest')})`);
  messages.info(`Logs:        ${stack.logs}`);
  if (!stack.ports) return;
  const at = (port: number, path: string): string => `http://127.0.0.1:${port}/${path}`;
  const { rolloutStatus, gpuStatus, rolloutMetrics, gpuMetrics } = stack.ports;
  messages.info(`Health:      ${at(rolloutStatus, 'health')} and ${at(gpuStatus, 'health')}`);
  messages.info(`Metrics:     ${at(rolloutMetrics, 'metrics')} and ${at(gpuMetrics, 'metrics')}`);
}

export function printRunStart(messages: Messages, stack: Stack, { handle, continued }: StartedRun): void {
  messages.info(`${continued ? 'Going on with' : 'Started'} run ${runPlace(stack, handle.workflowId)}`);
}

/** Runs that are open beside `shown`: the workers go on with them too. */
export async function printOpenRuns(messages: Messages, stack: Stack, shown?: string): Promise<void> {
  for (const workflowId of await openRuns(stack.client))
    if (workflowId !== shown) messages.info(`Also open: run ${runPlace(stack, workflowId)}`);
}

/** The run's id, and its page where we know the UI. */
function runPlace({ uiUrl, client }: Stack, workflowId: string): string {
  if (uiUrl === undefined) return workflowId;
  return `${workflowId}: ${uiUrl}/namespaces/${client.options.namespace}/workflows/${encodeURIComponent(workflowId)}`;
}

/** Prints how the run ended, writes the result file, and gives the exit status. */
export async function printOutcome(stack: Stack, outcome: RunOutcome, resultFile: string | undefined): Promise<number> {
  if (!outcome.ok) {
    process.stderr.write(`${pc.red('The run failed:')} ${outcome.message}\nLogs: ${stack.logs}\n`);
    return 1;
  }
  printResult(stack, outcome.result);
  if (resultFile !== undefined) {
    await writeResultFile(stack.data, outcome.result, resultFile);
    process.stdout.write(`Result:      ${path.resolve(resultFile)}\n`);
  }
  return 0;
}

function printResult(stack: Stack, result: TrainingRunResult): void {
  const report = path.join(stack.data, result.report, 'report.html');
  process.stdout.write(`\n${terminalTable(result.stages.map(tableStage))}\n\n${pc.green('Run completed.')}\n`);
  const policy = path.join(stack.data, result.report, 'policy');
  process.stdout.write(`Report:      ${report}\nPolicy:      ${policy} (artifact:${result.finalPolicy.sha256.slice(0, 12)})\n`);
  if (stack.uiUrl) process.stdout.write(`Temporal UI: ${stack.uiUrl}\n`);
}

/** Resolves when the person wants to stop. */
export function untilStopped(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    // An open timer keeps the process alive when nothing else does.
    const timer = setInterval(() => undefined, 60_000);
    signal.addEventListener('abort', () => {
      clearInterval(timer);
      resolve();
    });
  });
}
