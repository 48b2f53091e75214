/**
 * Episodes of any agent on the tasks of a dataset, outside a training run (`npm run episodes`): one activity an episode, so many at a time
 * as the input says. Started by that command or from the Temporal UI; its input is an EpisodesConfig, of which only `dataset` is needed.
 *
 * Invariants:
 *  I1 A trial is in the job's directory or it is not; whoever asks for it again gets the one that is there.
 *  I2 An error of the environment is no reward. Where most of the last trials end in one the job pauses, and goes on when told.
 *  I3 The history holds references and summaries; a long job continues as new.
 */
import {
  ActivityFailure,
  ApplicationFailure,
  CancellationScope,
  condition,
  continueAsNew,
  isCancellation,
  log,
  setCurrentDetails,
  setHandler,
  upsertSearchAttributes,
  workflowInfo,
} from '@temporalio/workflow';
import { closeJob, openJob, planTrials, runTrial, sweep } from './activity-options.ts';
import { PauseGate } from './control.ts';
import { resolveEpisodesConfig } from './episodes-config.ts';
import type { EpisodesConfig, TaskEpisodesInput } from './episodes-config.ts';
import type { EpisodesJob, JobCounts, JobProgress, OpenJobResult, PlannedTrial, TaskEpisodesResult, TrialSummary } from './job-contract.ts';
import { jobDetails, meanReward } from './job-details.ts';
import { attributes, job as jobQuery, pause, resume as resumeUpdate } from './messages.ts';
import { ConfigError } from './profiles.ts';

/** Some 6 events a trial: far below where the server suggests to continue as new, and seldom enough that draining the lanes costs little. */
const TRIALS_PER_EXECUTION = 400;
/** Of the plan, read at once: some 30 KB. */
const PAGE = 200;
/** The breaker looks at so many last trials, from the first few on. */
const WINDOW = 20;
const FEWEST = 5;
const RECENT = 12;
/** The stage of a job in the list of workflows. */
const STAGE = 'episodes';

/** Where a continued execution of a large job goes on. */
export interface JobResume {
  readonly opened: OpenJobResult;
  readonly next: number;
  readonly counts: JobCounts;
  readonly startedAt: number;
  readonly paused: boolean;
  readonly window: readonly boolean[];
  readonly recent: readonly TrialSummary[];
  readonly message?: string;
}

/** `carried` is this workflow's own: what a continued execution takes over. */
export async function taskEpisodes(input?: TaskEpisodesInput, carried?: JobResume): Promise<TaskEpisodesResult> {
  const config = configOrFail(input);
  const { workflowId, firstExecutionRunId: runKey } = workflowInfo();
  const run = new Job({ runKey, workflowId, config }, carried);
  let goesOn = false;
  try {
    const result = await run.all();
    if (result) return result;
    goesOn = true;
  } catch (error) {
    run.ended(isCancellation(error) ? 'cancelled' : 'failed');
    throw error;
  } finally {
    // Embedded sandboxes die with their process; containers outlive it.
    if (!goesOn && config.sandbox === 'docker') await CancellationScope.nonCancellable(() => sweep({ runKey, sandbox: config.sandbox }));
  }
  return await continueAsNew<typeof taskEpisodes>(input ?? {}, run.carriedOn());
}

function configOrFail(input: unknown): EpisodesConfig {
  try {
    return resolveEpisodesConfig(input);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    const failure = ApplicationFailure.nonRetryable(error.message, 'InvalidConfig', error.fields);
    // As in training-run.ts: a person's mistake needs no place in our code.
    failure.stack = '';
    throw failure;
  }
}

class Job {
  readonly #job: EpisodesJob;
  readonly #gate: PauseGate;
  readonly #running = new Map<string, { readonly task: string; readonly sample: number; readonly since: number }>();
  readonly #startedAt: number;
  #opened: OpenJobResult | undefined;
  #next: number;
  #counts: JobCounts;
  #window: boolean[];
  #recent: readonly TrialSummary[];
  #message: string | undefined;
  #finished = false;

  constructor(job: EpisodesJob, carried: JobResume | undefined) {
    this.#job = job;
    this.#opened = carried?.opened;
    this.#next = carried?.next ?? 0;
    this.#counts = carried?.counts ?? noTrials;
    this.#window = [...(carried?.window ?? [])];
    this.#recent = carried?.recent ?? [];
    this.#message = carried?.message;
    this.#startedAt = carried?.startedAt ?? workflowInfo().startTime.getTime();
    upsertSearchAttributes([
      { key: attributes.stage, value: STAGE },
      { key: attributes.profile, value: job.config.agent.split(':', 1)[0] ?? '' },
      // The UI's start form offers the values of an earlier job: those that this one has not earned yet are taken away.
      ...(carried ? [] : [{ key: attributes.score, value: null }]),
    ]);
    this.#gate = new PauseGate(carried?.paused, () => this.#pauseChanged());
    setHandler(jobQuery, () => this.#progress(), { description: 'Counts, and which episodes are at work.' });
    this.#handleUpdates();
    this.#refresh();
  }

  /** undefined: another execution has to go on. */
  async all(): Promise<TaskEpisodesResult | undefined> {
    const { config } = this.#job;
    const opened = (this.#opened ??= await openJob.executeWithOptions({ summary: `tasks of ${config.dataset}` }, [this.#job]));
    this.#refresh();
    if (opened.policy) upsertSearchAttributes([{ key: attributes.policy, value: opened.policy.sha256.slice(0, 12) }]);
    const first = this.#next;
    const plan = new Plan(opened);
    const last = Math.min(opened.trials, first + TRIALS_PER_EXECUTION);
    const lane = async (): Promise<void> => {
      while (this.#next < last && !workflowInfo().continueAsNewSuggested) {
        await this.#gate.open();
        // Another lane may have taken the last one while this one was held.
        if (this.#next >= last) return;
        const place = this.#next++;
        await this.#trial(opened, await plan.at(place), place);
      }
    };
    await Promise.all(Array.from({ length: Math.min(config.concurrency, opened.trials) }, lane));
    if (this.#next < opened.trials) return undefined;
    await condition(() => !this.#gate.paused);
    return await this.#close(opened);
  }

  carriedOn(): JobResume {
    const opened = this.#opened;
    if (!opened) throw new Error('a job that has not been opened is continued');
    return {
      ...{ opened, next: this.#next, counts: this.#counts, startedAt: this.#startedAt, paused: this.#gate.paused },
      ...{ window: this.#window, recent: this.#recent },
      ...(this.#message === undefined ? {} : { message: this.#message }),
    };
  }

  /** Last words of a job that fails or is cancelled, for the list of workflows. */
  ended(status: 'failed' | 'cancelled'): void {
    upsertSearchAttributes([{ key: attributes.status, value: status }]);
  }

  async #trial(opened: OpenJobResult, trial: PlannedTrial, place: number): Promise<void> {
    const { task, sample } = trial;
    const key = `${task} ${sample}`;
    this.#running.set(key, { task, sample, since: Date.now() });
    this.#refresh();
    const { directory, source, policy } = opened;
    const input = { job: this.#job, opened: { directory, source, ...(policy ? { policy } : {}) }, trial };
    const summary = `${place + 1} of ${opened.trials} · ${task.slice(0, 80)} · sample ${sample + 1}`;
    const done = await runTrial.executeWithOptions({ summary }, [input]).catch((error: unknown) => notRun(trial, error));
    this.#running.delete(key);
    this.#counts = withTrial(this.#counts, done);
    this.#recent = [done, ...this.#recent].slice(0, RECENT);
    this.#breaker(done);
    this.#refresh();
  }

  /** I2 */
  #breaker({ infraFailed, error }: TrialSummary): void {
    this.#window = [...this.#window, infraFailed].slice(-WINDOW);
    const failed = this.#window.filter(Boolean).length;
    const { maxInfraFailedRate } = this.#job.config;
    if (this.#gate.paused || this.#window.length < FEWEST || failed / this.#window.length <= maxInfraFailedRate) return;
    this.#message = `${failed} of the last ${this.#window.length} episodes failed for their environment, the last for ${error}; mend that, then send the update resume`;
    log.warn(this.#message);
    void this.#gate.set(true);
  }

  #pauseChanged(): void {
    if (!this.#gate.paused) {
      this.#window = [];
      this.#message = undefined;
    }
    this.#refresh();
  }

  async #close(opened: OpenJobResult): Promise<TaskEpisodesResult> {
    const { result } = await closeJob.executeWithOptions({ summary: 'result of the job' }, [
      { job: this.#job, opened, startedAt: this.#startedAt },
    ]);
    const mean = meanReward(this.#counts);
    if (mean !== undefined) upsertSearchAttributes([{ key: attributes.score, value: 100 * mean }]);
    this.#finished = true;
    this.#refresh();
    const { directory, source, trials, refused } = opened;
    return {
      ...{ directory, source, trials, counts: this.#counts },
      ...(mean === undefined ? {} : { meanReward: mean }),
      ...{ infraFailedRate: trials === 0 ? 0 : this.#counts.infraFailed / trials, refused, result },
    };
  }

  #status(): JobProgress['status'] {
    if (this.#finished) return 'finished';
    if (this.#gate?.paused) return 'paused';
    return this.#opened ? 'running' : 'starting';
  }

  #progress(): JobProgress {
    const opened = this.#opened;
    return {
      ...{ status: this.#status(), config: this.#job.config, startedAt: this.#startedAt, counts: this.#counts, recent: this.#recent },
      ...(this.#message === undefined ? {} : { message: this.#message }),
      ...{
        directory: opened?.directory ?? '',
        source: opened?.source ?? '',
        trials: opened?.trials ?? 0,
        refused: opened?.refusedCount ?? 0,
      },
      running: [...this.#running.values()],
    };
  }

  #lastStatus = '';
  #refresh(): void {
    setCurrentDetails(jobDetails(this.#progress()));
    const status = this.#status();
    if (status === this.#lastStatus) return;
    this.#lastStatus = status;
    upsertSearchAttributes([{ key: attributes.status, value: status }]);
  }

  #handleUpdates(): void {
    const unless = (refused: boolean, why: string): void => {
      if (refused) throw ApplicationFailure.nonRetryable(why, 'Refused');
    };
    setHandler(
      pause,
      async () => {
        await this.#gate.set(true);
        return 'paused: the episodes that have started are finished first';
      },
      {
        description: 'Hold before the next episode. No argument.',
        validator: () => {
          unless(this.#finished, 'the job has finished');
          unless(this.#gate.paused, 'the job is paused already; send resume to go on');
        },
      },
    );
    setHandler(
      resumeUpdate,
      async () => {
        await this.#gate.set(false);
        return 'goes on';
      },
      { description: 'Go on after a pause. No argument.', validator: () => unless(!this.#gate.paused, 'the job is not paused') },
    );
  }
}

/**
 * A trial that none of its activity's attempts could end: a task that has changed or gone since, or a bug. It fails no other.
 * @throws the error where it is a cancellation, or says that the job's own input is wrong
 */
function notRun({ task, sample }: PlannedTrial, error: unknown): TrialSummary {
  const cause = error instanceof ActivityFailure ? error.cause : undefined;
  if (isCancellation(error) || !(cause instanceof ApplicationFailure) || cause.type === 'UserError') throw error;
  log.warn(`${task} #${sample + 1} was not run: ${cause.message}`);
  const failed = { outcome: 'no-verdict', rewardValid: false, error: cause.type ?? 'Error', infraFailed: true } as const;
  return { name: '', task, sample, ...failed, attempts: 1, seconds: 0 };
}

/** The plan's trials, read page by page. */
class Plan {
  readonly #opened: OpenJobResult;
  readonly #pages = new Map<number, Promise<readonly PlannedTrial[]>>();

  constructor(opened: OpenJobResult) {
    this.#opened = opened;
  }

  async at(place: number): Promise<PlannedTrial> {
    const page = Math.floor(place / PAGE);
    let reading = this.#pages.get(page);
    if (!reading) {
      const summary = `plan, trials ${page * PAGE + 1} to ${Math.min((page + 1) * PAGE, this.#opened.trials)}`;
      reading = planTrials.executeWithOptions({ summary }, [{ plan: this.#opened.plan, from: page * PAGE, count: PAGE }]);
      this.#pages.set(page, reading);
    }
    const found = (await reading)[place % PAGE];
    if (!found) throw new RangeError(`the plan has no trial ${place}`);
    return found;
  }
}

const noTrials: JobCounts = { done: 0, passed: 0, failed: 0, noVerdict: 0, infraFailed: 0, rewardSum: 0, rewards: 0, errors: {} };

function withTrial(counts: JobCounts, { outcome, reward, rewardValid, error, infraFailed }: TrialSummary): JobCounts {
  const counted = rewardValid && reward !== undefined;
  return {
    done: counts.done + 1,
    passed: counts.passed + (outcome === 'passed' ? 1 : 0),
    failed: counts.failed + (outcome === 'failed' ? 1 : 0),
    noVerdict: counts.noVerdict + (outcome === 'no-verdict' ? 1 : 0),
    infraFailed: counts.infraFailed + (infraFailed ? 1 : 0),
    rewardSum: counts.rewardSum + (counted ? reward : 0),
    rewards: counts.rewards + (counted ? 1 : 0),
    errors: error === undefined ? counts.errors : { ...counts.errors, [error]: (counts.errors[error] ?? 0) + 1 },
  };
}
