/**
 * A whole run: Base → RSR-1 → RPR-1 → RSR-2 → RPR-2 → … (docs/method.md). This is the one workflow a person starts; its input
 * is any part of the configuration, `{}` included.
 *
 * Invariants:
 *  I1 Artifact keys and seeds derive from `originalExecutionRunId` and the configuration, so a workflow reset finds its work.
 *  I2 Only tasks that pass the gate ("do nothing" fails, the reference solution passes) are trained or evaluated on.
 *  I3 A stage that is not adopted leaves the policy as it was.
 *  I4 A stage is over when it is recorded in the ledger; what is recorded with the same inputs, code and settings is not run again.
 */
import { ApplicationFailure, CancellationScope, allHandlersFinished, condition, isCancellation, workflowInfo } from '@temporalio/workflow';
import type { ChildWorkflowOptions } from '@temporalio/workflow';
import { decideAdoption } from '../method/evaluation.ts';
import type { AdoptionScore } from '../method/evaluation.ts';
import type { ArtifactRef } from '../records/types.ts';
import { calibrate, closeRun, openStage, prepareRun, recordStage, report, sweep } from './activity-options.ts';
import type { RunConfig } from './config.ts';
import type {
  CalibrateResult,
  EvaluateResult,
  PrepareRunResult,
  StageInputs,
  StageKind,
  StageName,
  StageResult,
  TaskListing,
  TrainedStage,
  TrainingRunInput,
  TrainingRunResult,
} from './contract.ts';
import { reportLink, tasksText } from './details.ts';
import { addCounts } from './episodes.ts';
import { evaluation } from './evaluation.ts';
import { attributes } from './messages.ts';
import { ConfigError, plannedStages, resolveConfig } from './profiles.ts';
import { rprStage } from './rpr-stage.ts';
import { rsrStage } from './rsr-stage.ts';
import { RunState } from './run-state.ts';

export async function trainingRun(input?: TrainingRunInput): Promise<TrainingRunResult> {
  const config = configOrFail(input);
  const info = workflowInfo();
  const runKey = info.originalExecutionRunId;
  const state = new RunState(runKey, info.startTime.getTime(), config, plannedStages(config.rounds));
  try {
    const result = await new Run(config, runKey, state).all();
    await condition(allHandlersFinished);
    return result;
  } catch (error) {
    state.ended(isCancellation(error) ? 'cancelled' : 'failed');
    throw error;
  } finally {
    // Embedded sandboxes die with their process; containers outlive it.
    if (config.sandbox === 'docker') await CancellationScope.nonCancellable(() => sweep({ runKey, sandbox: config.sandbox }));
  }
}

function configOrFail(input: unknown): RunConfig {
  try {
    return resolveConfig(input);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    const failure = ApplicationFailure.nonRetryable(error.message, 'InvalidConfig', error.fields);
    // A person's mistake, and the UI shows it beside the input: where in our code it was found would only bury what is wrong.
    failure.stack = '';
    throw failure;
  }
}

/** The stages in order, and what one hands to the next. */
class Run {
  readonly #config: RunConfig;
  readonly #runKey: string;
  readonly #state: RunState;
  readonly #root = workflowInfo().workflowId;
  readonly #startedAt = workflowInfo().startTime.getTime();
  readonly #stages: StageResult[] = [];

  constructor(config: RunConfig, runKey: string, state: RunState) {
    this.#config = config;
    this.#runKey = runKey;
    this.#state = state;
  }

  async all(): Promise<TrainingRunResult> {
    const [config, runKey, state] = [this.#config, this.#runKey, this.#state];
    await state.enter('Base', 'prepare');
    const prepared = gated(
      await prepareRun.executeWithOptions({ summary: 'Base · suites, base policy and code version' }, [
        { runKey, workflowId: this.#root, config },
      ]),
    );
    state.linkReport(prepared.reportUrl);
    await state.enter('Base', 'calibrate');
    const tasks = [...prepared.suites.flatMap((suite) => suite.tasks), ...prepared.training];
    const calibrated = await calibrate.executeWithOptions({ summary: `Base · gate, nop and reference solution · ${tasksText(tasks)}` }, [
      { runKey, sandbox: config.sandbox, tasks },
    ]);
    const usable = gated(prepared, calibrated);
    const inputs = { calibration: calibrated.calibration, tasksHash: prepared.tasksHash };

    const base = await this.#stage('Base', 'base', 0, { ...inputs, policy: prepared.basePolicy }, async () => {
      const evaluation = await this.#evaluate('Base', prepared.basePolicy, usable, inputs.calibration);
      const trained = { counts: addCounts(), batches: [], runbooks: [], examples: [], policy: prepared.basePolicy };
      return { ...trained, evaluation, adopted: true, decision: 'the policy that the run starts from' };
    });
    let [policy, reference] = [base.policy, base.evaluation];
    let critic: ArtifactRef | undefined;
    for (let round = 1; round <= config.rounds; round++) {
      for (const kind of ['RSR', 'RPR'] as const) {
        const stage = `${kind}-${round}`;
        // RSR does not touch the critic, so its outcome does not depend on one.
        const given = { ...inputs, policy, ...(critic && kind === 'RPR' ? { critic } : {}), reference: reference.table };
        const before = reference;
        const done = await this.#stage(stage, kind === 'RSR' ? 'rsr' : 'rpr', round, given, async () => {
          const trained = await this.#train(kind, round, given, usable.training);
          const evaluation = await this.#evaluate(stage, trained.policy, usable, inputs.calibration);
          const changed = trained.policy.sha256 !== given.policy.sha256;
          const outcome = changed
            ? this.#adoption(before, evaluation, usable)
            : { adopted: false, decision: trained.stopped ?? 'the policy did not change' };
          return { ...trained, ...outcome, evaluation };
        });
        critic = done.critic ?? critic;
        if (done.adopted) [policy, reference] = [done.policy, done.evaluation];
      }
    }
    return await this.#close(policy, inputs.calibration);
  }

  /** One stage: reused where it is finished already, else run and recorded in the ledger. */
  async #stage(
    stage: StageName,
    kind: StageKind,
    round: number,
    inputs: StageInputs,
    run: () => Promise<Omit<StageResult, 'name' | 'kind' | 'seconds' | 'record' | 'decidedBy'>>,
  ): Promise<StageResult> {
    const [config, runKey, state] = [this.#config, this.#runKey, this.#state];
    const approvedBy = kind === 'base' ? undefined : await state.approval(stage);
    await state.enter(stage, 'start');
    const startedAt = kind === 'base' ? this.#startedAt : Date.now();
    const opening = { runKey, stage, kind, round, config, inputs };
    const opened = await openStage.executeWithOptions({ summary: `${stage} · look for it among the finished stages` }, [opening]);
    const { finished, ...key } = opened;
    if (finished) return this.#add(finished);
    const outcome = await run();
    const result = {
      ...{ name: stage, kind, ...outcome },
      decidedBy: { start: approvedBy ?? 'rule', adoption: 'rule' },
      seconds: this.#secondsSince(startedAt),
    };
    await state.enter(stage, 'record');
    const record = await recordStage.executeWithOptions({ summary: `${stage} · record in the ledger` }, [
      { ...opening, opened: key, result, workflowId: this.#root, startedAt },
    ]);
    return this.#add({ ...result, record });
  }

  async #close(policy: ArtifactRef, calibration: ArtifactRef): Promise<TrainingRunResult> {
    const [config, runKey, state] = [this.#config, this.#runKey, this.#state];
    await state.enter(this.#stages.at(-1)?.name ?? 'Base', 'report');
    const written = await report.executeWithOptions({ summary: 'report and machine-readable result' }, [
      { runKey, workflowId: this.#root, config, stages: this.#stages, calibration, wallSeconds: this.#secondsSince(this.#startedAt) },
    ]);
    const stages = this.#stages.map(({ record }) => record);
    const ledger = await closeRun.executeWithOptions({ summary: 'close the ledger' }, [
      { runKey, workflowId: this.#root, finalPolicy: policy, stages, result: written.result },
    ]);
    const { reportUrl } = state;
    return {
      // First, because the UI shows the beginning of a long result.
      ...(reportUrl === undefined ? {} : { reportUrl }),
      ...{ runKey, config, stages: this.#stages, finalPolicy: policy, report: written.directory, ledger },
      table: state.finish(),
    };
  }

  async #train(
    kind: 'RSR' | 'RPR',
    round: number,
    { policy, critic, calibration }: StageInputs,
    training: readonly TaskListing[],
  ): Promise<TrainedStage> {
    const stage = `${kind}-${round}`;
    const input = { root: this.#root, runKey: this.#runKey, stage, round, config: this.#config, policy, training };
    const options = { workflowId: `${this.#root}/${stage.toLowerCase()}`, ...this.#listedAs(stage) };
    if (kind === 'RSR') {
      return await this.#state.gate.run(rsrStage, { ...options, staticSummary: `${stage} · Recursive Self-Rewrite`, args: [input] });
    }
    return await this.#state.gate.run(rprStage, {
      ...options,
      staticSummary: `${stage} · Recursive Policy-Refine`,
      args: [{ ...input, calibration, ...(critic ? { critic } : {}) }],
    });
  }

  async #evaluate(stage: StageName, policy: ArtifactRef, { suites }: Usable, calibration: ArtifactRef): Promise<EvaluateResult> {
    await this.#state.enter(stage, 'evaluation');
    return await this.#state.gate.run(evaluation, {
      workflowId: `${this.#root}/${stage.toLowerCase()}/evaluation`,
      staticSummary: `${stage} · evaluation on ${suites.length} suites`,
      ...this.#listedAs(stage),
      args: [{ root: this.#root, runKey: this.#runKey, stage, config: this.#config, policy, suites, calibration }],
    });
  }

  #adoption(before: EvaluateResult, after: EvaluateResult, { suites }: Usable): Pick<StageResult, 'adopted' | 'decision'> {
    const tasks = suites.find(({ name }) => name === DEV_SUITE)?.tasks.length ?? 0;
    const [old, now] = [devScore(before, tasks), devScore(after, tasks)];
    if (!old || !now) return { adopted: true, decision: `there is no suite ${DEV_SUITE} to decide on` };
    const { adopted, reason } = decideAdoption({ before: old, after: now, ...this.#config.adoption });
    return { adopted, decision: reason };
  }

  #listedAs(stage: StageName): Pick<ChildWorkflowOptions, 'typedSearchAttributes' | 'staticDetails'> {
    const { reportUrl } = this.#state;
    return {
      staticDetails: [`Part of the run ${this.#root}.`, ...(reportUrl === undefined ? [] : [reportLink(reportUrl, false)])].join('\n\n'),
      typedSearchAttributes: [
        { key: attributes.stage, value: stage },
        { key: attributes.profile, value: this.#config.profile },
      ],
    };
  }

  #add(stage: StageResult): StageResult {
    this.#stages.push(stage);
    this.#state.evaluated(stage);
    return stage;
  }

  #secondsSince(start: number): number {
    return (Date.now() - start) / 1000;
  }
}

/** The suite that adoption is decided on, so that the reported suites stay untouched by choices. */
const DEV_SUITE = 'dev';
function devScore({ suites }: EvaluateResult, tasks: number): AdoptionScore | undefined {
  const found = suites.find(({ name }) => name === DEV_SUITE);
  return found && { mean: found.mean, standardError: found.standardError, episodes: tasks * found.scores.length };
}

type Usable = Pick<PrepareRunResult, 'suites' | 'training'>;

/** I2: without the tasks that calibration rejected. A run without training or evaluation tasks cannot mean anything. */
function gated<T extends Usable>(prepared: T, calibrated?: CalibrateResult): T {
  const rejected = new Set(calibrated?.rejected.map(({ task }) => task));
  const keep = ({ suite, id }: TaskListing): boolean => !rejected.has(`${suite}/${id}`);
  const suites = prepared.suites.map((suite) => ({ ...suite, tasks: suite.tasks.filter(keep) })).filter(({ tasks }) => tasks.length > 0);
  const training = prepared.training.filter(keep);
  if (suites.length === 0 || training.length === 0) {
    const reasons = calibrated?.rejected.slice(0, 5).map(({ task, reason }) => `${task}: ${reason}`) ?? [];
    const what = suites.length === 0 ? 'evaluation' : 'training';
    throw ApplicationFailure.nonRetryable([`no ${what} task can be used in this run`, ...reasons].join('\n'), 'TaskError');
  }
  return { ...prepared, suites, training };
}
