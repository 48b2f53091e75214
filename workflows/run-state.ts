/**
 * What a training run shows of itself: the answer of the `progress` query, the table in the current details, the search
 * attributes, and the messages a person sends (pause, resume, approve).
 */
import { ApplicationFailure, condition, setCurrentDetails, setHandler, upsertSearchAttributes } from '@temporalio/workflow';
import type { RunConfig } from './config.ts';
import type { ProgressSignal, RunProgress, StageName, StageResult } from './contract.ts';
import { PauseGate } from './control.ts';
import { runDetails } from './details.ts';
import { markdownTable } from './table.ts';
import { approveStage, attributes, pause, progress, progressSignal, resume } from './messages.ts';
import type { ApproveStage } from './messages.ts';

type Shown = { -readonly [K in keyof RunProgress]: RunProgress[K] };

export class RunState {
  readonly gate: PauseGate;
  readonly #shown: Shown;
  readonly #config: RunConfig;
  /** Stage → who approved it. */
  readonly #approved = new Map<StageName, string>();
  /** What the status goes back to after a pause. */
  #statusBelow: RunProgress['status'] = 'starting';

  constructor(runKey: string, startedAt: number, config: RunConfig, plannedStages: readonly StageName[]) {
    this.#config = config;
    this.#shown = {
      runKey,
      profile: config.profile,
      status: 'starting',
      stage: plannedStages[0] ?? '',
      activity: 'prepare',
      startedAt,
      stages: [],
      plannedStages,
    };
    this.gate = new PauseGate(false, () => this.#refresh());
    // The UI's start form offers the values of an earlier run: those that this run has not earned yet are taken away.
    upsertSearchAttributes([
      { key: attributes.profile, value: config.profile },
      { key: attributes.policy, value: null },
      { key: attributes.score, value: null },
    ]);
    setHandler(progress, () => this.#shown, { description: 'Stage, activity, counts and scores so far.' });
    setHandler(progressSignal, (signal) => this.#take(signal), { description: 'From the child workflows; not for people.' });
    this.#handleUpdates();
    this.#refresh();
  }

  /** Shown as a link while the run is open and in its result. */
  linkReport(url: string | undefined): void {
    if (url === undefined) return;
    this.#shown.reportUrl = url;
    this.#refresh();
  }
  get reportUrl(): string | undefined {
    return this.#shown.reportUrl;
  }

  /** Before each activity or child of the training run itself. */
  async enter(stage: StageName, activity: string): Promise<void> {
    await this.gate.open();
    this.#statusBelow = 'running';
    delete this.#shown.loss;
    delete this.#shown.count;
    Object.assign(this.#shown, { stage, activity });
    this.#refresh();
  }

  /** Waits for a person where the configuration asks for it. Gives the name that came with the approval. */
  async approval(stage: StageName): Promise<string | undefined> {
    if (!this.#config.requireApproval) return undefined;
    if (this.#approved.has(stage)) return this.#approved.get(stage);
    this.#statusBelow = 'waiting-for-approval';
    delete this.#shown.count;
    Object.assign(this.#shown, { stage, activity: 'approveStage' });
    this.#refresh();
    await condition(() => this.#approved.has(stage));
    return this.#approved.get(stage);
  }

  evaluated(stage: StageResult): void {
    const { name, adopted, evaluation, record } = stage;
    const { fourSuiteMean, fourSuiteStandardError: standardError, suites } = evaluation;
    const reused = record.reusedFrom !== undefined;
    this.#shown.stages = [...this.#shown.stages, { name, adopted, reused, fourSuiteMean, standardError, suites }];
    const score = { key: attributes.score, value: 100 * fourSuiteMean };
    upsertSearchAttributes(adopted ? [score, { key: attributes.policy, value: stage.policy.sha256.slice(0, 12) }] : [score]);
    this.#refresh();
  }

  /** Gives the run's table as Markdown. */
  finish(): string {
    this.#statusBelow = 'finished';
    this.#shown.activity = 'done';
    delete this.#shown.count;
    delete this.#shown.loss;
    this.#refresh();
    return markdownTable(this.#shown.stages);
  }

  /** Last words of a run that fails or is cancelled, for the list of workflows. */
  ended(status: 'failed' | 'cancelled'): void {
    upsertSearchAttributes([{ key: attributes.status, value: status }]);
  }

  #lastAttributes = '';
  #refresh(): void {
    this.#shown.status = this.gate?.paused && this.#statusBelow !== 'finished' ? 'paused' : this.#statusBelow;
    setCurrentDetails(runDetails(this.#shown));
    const { status, stage } = this.#shown;
    if (this.#lastAttributes === `${status} ${stage}`) return;
    this.#lastAttributes = `${status} ${stage}`;
    upsertSearchAttributes([
      { key: attributes.status, value: status },
      { key: attributes.stage, value: stage },
    ]);
  }

  #take(signal: ProgressSignal): void {
    // A late signal of an earlier stage must not turn the display back.
    if (signal.stage !== this.#shown.stage) return;
    delete this.#shown.count;
    // A signal without a loss leaves the last one of the stage in view.
    Object.assign(this.#shown, signal);
    this.#refresh();
  }

  #handleUpdates(): void {
    const unless = (refused: boolean, why: string): void => {
      if (refused) throw ApplicationFailure.nonRetryable(why, 'Refused');
    };
    setHandler(
      pause,
      async () => {
        await this.gate.set(true);
        return `paused in ${this.#shown.stage}: what has started is finished first`;
      },
      {
        description: 'Hold before the next chunk or training activity. No argument.',
        validator: () => {
          unless(this.#statusBelow === 'finished', 'the run has finished');
          unless(this.gate.paused, 'the run is paused already; send resume to go on');
        },
      },
    );
    setHandler(
      resume,
      async () => {
        await this.gate.set(false);
        return `goes on in ${this.#shown.stage}`;
      },
      {
        description: 'Go on after a pause. No argument.',
        validator: () => unless(!this.gate.paused, 'the run is not paused'),
      },
    );
    setHandler(
      approveStage,
      (argument?: ApproveStage) => {
        const stage = this.#toApprove(argument) ?? '';
        this.#approved.set(stage, argument?.by ?? 'a person');
        return `approved ${stage}`;
      },
      {
        description:
          'Let a stage start, e.g. {"stage": "RSR-1", "by": "your name"}; without a stage the next one. Only with requireApproval.',
        validator: (argument?: ApproveStage) => {
          unless(!this.#config.requireApproval, 'this run does not wait for approval (requireApproval is false)');
          const open = this.#approvable();
          unless(open.length === 0, 'no stage is left to approve');
          unless(this.#toApprove(argument) === undefined, `stage: got ${JSON.stringify(argument)}, expected one of ${open.join(', ')}`);
        },
      },
    );
  }

  /** Stages that have not begun and are not approved yet. Base needs no approval. */
  #approvable(): StageName[] {
    const begun = this.#shown.stages.length;
    return this.#shown.plannedStages.filter((name, index) => index > 0 && index >= begun && !this.#approved.has(name));
  }
  #toApprove(argument: ApproveStage | undefined | null): StageName | undefined {
    const open = this.#approvable();
    const stage = argument?.stage;
    if (stage === undefined) return open[0];
    return open.find((name) => name === stage);
  }
}
