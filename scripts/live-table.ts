/**
 * The live view of a run in the terminal: what it is doing, how far it is, what it has reached. Redrawn in place on a
 * terminal; without one, a line when something changed. The text is made by pure functions; LiveTable only prints.
 */
import pc from 'picocolors';
import { terminalTable } from '../records/table.ts';
import type { RunProgress } from '../workflows/contract.ts';
import { countTexts } from '../workflows/details.ts';

/** A pending activity of the run, as the server describes it. */
export interface LiveActivity {
  readonly type: string;
  readonly attempt: number;
  readonly step?: number;
  readonly totalSteps?: number;
  readonly loss?: number;
  readonly lastFailure?: string;
}
export interface LiveState {
  readonly progress: RunProgress;
  readonly activities: readonly LiveActivity[];
  /** Milliseconds since the epoch. */
  readonly now: number;
  /** When the last stage ended, as far as this process saw it. */
  readonly lastStageEndedAt?: number;
}

/** `75` → `1:15`, `3700` → `1:01:40`. */
export function duration(seconds: number): string {
  const total = Math.max(0, Math.round(seconds));
  const hours = Math.floor(total / 3600);
  const minutes = Math.floor((total % 3600) / 60);
  const rest = String(total % 60).padStart(2, '0');
  return hours > 0 ? `${hours}:${String(minutes).padStart(2, '0')}:${rest}` : `${minutes}:${rest}`;
}

/** The cost of a stage relative to the others: Base is only evaluated. */
const weight = (stage: string): number => (stage === 'Base' ? 1 : 4);

/**
 * Seconds left, from the time that the finished stages took and the stages that are planned; undefined before the first
 * stage has ended, when there is nothing to go by.
 */
export function secondsLeft({ progress, now, lastStageEndedAt }: LiveState): number | undefined {
  const done = progress.stages.reduce((sum, stage) => sum + weight(stage.name), 0);
  const planned = progress.plannedStages.reduce((sum, stage) => sum + weight(stage), 0);
  if (done === 0) return undefined;
  const endedAt = lastStageEndedAt ?? now;
  const perUnit = Math.max(0, endedAt - progress.startedAt) / done;
  return Math.max(0, perUnit * (planned - done) - (now - endedAt)) / 1000;
}

export function bar(share: number, width: number): string {
  const full = Math.round(Math.min(1, Math.max(0, share)) * width);
  return `${'█'.repeat(full)}${'░'.repeat(width - full)}`;
}

/** How far the current activity is, in [0, 1]. A PPO iteration that is training counts by its steps. */
function share({ progress: { count }, activities }: LiveState): number {
  const training = activities.find((activity) => activity.step !== undefined);
  const steps = training?.step === undefined || !training.totalSteps ? 0 : training.step / training.totalSteps;
  if (!count) return steps;
  if (count.total === 0) return 0;
  if (count.unit === 'epochs') return Math.max(steps, count.done / count.total);
  return (count.done + (count.unit === 'iterations' ? steps : 0)) / count.total;
}

/** One line: stage, activity, its counts, training step, loss, attempts. */
export function statusLine(state: LiveState): string {
  const { progress } = state;
  const training = state.activities.find((activity) => activity.step !== undefined);
  const loss = training?.loss ?? progress.loss;
  const failing = state.activities.find((activity) => activity.attempt > 1);
  return [
    `${progress.stage} · ${progress.activity}`,
    ...(progress.count ? countTexts(progress.count) : []),
    ...(training?.step !== undefined ? [`step ${training.step}${training.totalSteps === undefined ? '' : `/${training.totalSteps}`}`] : []),
    ...(loss !== undefined ? [`loss ${loss.toPrecision(4)}`] : []),
    ...(failing
      ? [
          `${failing.type}: attempt ${failing.attempt}${failing.lastFailure ? ` after ${JSON.stringify(failing.lastFailure.slice(0, 80))}` : ''}`,
        ]
      : []),
  ].join(' · ');
}

/** The lines of the view for a terminal of `columns` columns. */
export function liveLines(state: LiveState, columns: number): string[] {
  const { progress, now } = state;
  const left = secondsLeft(state);
  const planned = progress.plannedStages.length;
  const stageNumber = Math.min(progress.stages.length + 1, planned);
  const status: Record<RunProgress['status'], string> = {
    starting: 'starting',
    running: '',
    paused: pc.yellow('paused: send the update `resume`'),
    'waiting-for-approval': pc.yellow('waiting for the update `approveStage`'),
    finished: 'finished',
  };
  const head = [
    pc.bold(`${progress.profile} run`),
    `stage ${stageNumber} of ${planned}`,
    `${duration((now - progress.startedAt) / 1000)} elapsed`,
    ...(left === undefined ? [] : [`about ${duration(left)} left`]),
    ...(status[progress.status] ? [status[progress.status]] : []),
  ].join('  ');
  const room = Math.max(20, columns - 1);
  const line = statusLine(state);
  const lines = [head, `${pc.cyan(bar(share(state), 24))}  ${line.length > room - 26 ? `${line.slice(0, room - 27)}…` : line}`];
  if (progress.stages.length > 0) lines.push(...terminalTable(progress.stages).split('\n'));
  return lines;
}

/** What is shown of a run or of a job. */
export interface LiveView {
  /** For a terminal of so many columns. */
  readonly lines: (columns: number) => string[];
  /** Everything lasting so far, oldest first: printed once each where there is no terminal. */
  readonly events: readonly string[];
  /** What goes on now, in one line. */
  readonly line: string;
  /** Milliseconds since the epoch. */
  readonly now: number;
  readonly startedAt: number;
}

export function runView(state: LiveState): LiveView {
  const { stages, startedAt } = state.progress;
  return {
    lines: (columns) => liveLines(state, columns),
    events: stages.map(
      ({ name, fourSuiteMean, adopted }) =>
        `${name}: four-suite mean ${(100 * fourSuiteMean).toFixed(1)} %${adopted ? '' : ', not adopted'}`,
    ),
    line: statusLine(state),
    ...{ now: state.now, startedAt },
  };
}

/** Prints the view. `log` puts a lasting line above it. */
export class LiveTable {
  readonly #output: NodeJS.WriteStream;
  #drawn = 0;
  #lastLine = '';
  #lastPlainAt = 0;
  #eventsPrinted = 0;
  #view: LiveView | undefined;

  constructor(output: NodeJS.WriteStream) {
    this.#output = output;
  }

  update(state: LiveState): void {
    this.show(runView(state));
  }

  show(view: LiveView): void {
    this.#view = view;
    if (this.#output.isTTY) this.#draw();
    else this.#plain(view);
  }

  log(message: string): void {
    this.#clear();
    this.#output.write(`${message}\n`);
    if (this.#output.isTTY) this.#draw();
  }

  /** Removes the view; what follows is printed normally. */
  finish(): void {
    this.#clear();
    this.#view = undefined;
  }

  #draw(): void {
    if (!this.#view) return;
    // A view taller than the terminal could not be redrawn in place: its first lines would scroll away.
    const lines = this.#view.lines(this.#output.columns || 80).slice(0, Math.max(2, (this.#output.rows || 24) - 1));
    this.#clear();
    this.#output.write(`${lines.join('\n')}\n`);
    this.#drawn = lines.length;
  }

  #clear(): void {
    // To the line's start first: a terminal that shows a typed ^C has moved the cursor.
    if (this.#drawn > 0) this.#output.write(`\r\u001b[${this.#drawn}A\u001b[0J`);
    this.#drawn = 0;
  }

  /** Without a terminal: each event once, and what goes on when it changed, at most every five seconds. */
  #plain({ events, line, now, startedAt }: LiveView): void {
    for (const event of events.slice(this.#eventsPrinted)) this.#output.write(`${event}\n`);
    this.#eventsPrinted = events.length;
    if (line === this.#lastLine || now - this.#lastPlainAt < 5000) return;
    this.#lastLine = line;
    this.#lastPlainAt = now;
    this.#output.write(`[${duration((now - startedAt) / 1000)}] ${line}\n`);
  }
}
