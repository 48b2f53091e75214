/** Evaluation tables from their verdicts, adoption decisions from the tables, and rewards from the verdicts of a batch. */
import { reward } from '../../activities/reward.ts';
import { decideAdoption } from '../../method/evaluation.ts';
import type { AdoptionScore } from '../../method/evaluation.ts';
import type { RewardedEpisode } from '../../policy/types.ts';
import type { RunConfig } from '../../workflows/config.ts';
import type { EvaluateInput, EvaluateResult, EvaluationInput } from '../../workflows/contract.ts';
import type { Calibration } from '../calibration.ts';
import { buildEvaluation } from '../evaluation.ts';
import { inputOf } from '../history.ts';
import type { StageRecord } from '../lineage.ts';
import type { ArtifactKind } from '../types.ts';
import type { AuditContext, Call } from './context.ts';
import { show } from './findings.ts';

/** The suite that adoption is decided on (workflows/training-run.ts). */
const DEV_SUITE = 'dev';

function evaluateCall(context: AuditContext, record: StageRecord): Call | undefined {
  return context.historiesOf(record).flatMap((history) => context.calls(history, 'evaluate'))[0];
}

export async function checkEvaluation(context: AuditContext, record: StageRecord): Promise<void> {
  const { findings, reader } = context;
  const { stage, outputs, inputs } = record.content;
  const place = `evaluation table of ${stage}`;
  const call = evaluateCall(context, record);
  if (!call) {
    findings.missing('evaluation', place, 'the history of the evaluation is not here');
    return;
  }
  const { suites, repeats } = call.input as EvaluateInput;
  await context.attempt('evaluation', place, async () => {
    const calibration = await reader.readJson<Calibration>({ sha256: inputs.calibration, kind: 'calibration' });
    const { table, result } = await buildEvaluation({ suites, repeats, calibration, store: reader });
    findings.count('evaluation');
    if (result.table.sha256 !== outputs.evaluation.sha256) {
      const stored = await reader.readJson(outputs.evaluation).catch((error: unknown) => (error instanceof Error ? error.message : error));
      const same = findings.equal(
        'evaluation',
        `evaluation artifact ${outputs.evaluation.sha256.slice(0, 12)} of ${stage}`,
        table,
        stored,
        stage,
      );
      if (same) findings.problem('evaluation', context.place(record), result.table.sha256, outputs.evaluation.sha256, stage);
    }
    const told = await context.result(record);
    if (told) findings.equal('evaluation', `result of ${stage}, evaluation`, result, told.evaluation, stage);
  });
}

export async function checkDecision(context: AuditContext, record: StageRecord): Promise<void> {
  const { findings } = context;
  const { stage, stageKind, inputs, decision } = record.content;
  if (stageKind === 'base') return;
  const place = `${context.place(record)}, content.decision`;
  const found = { adopted: decision.adopted, reason: decision.reason };
  const own = await context.result(record);
  if (!own) return;
  if (own.policy.sha256 === inputs.policy) {
    findings.equal('decisions', place, { adopted: false, reason: own.stopped ?? 'the policy did not change' }, found, stage);
    return;
  }
  const before = context.chain.find(({ content }) => content.outputs.evaluation.sha256 === inputs.reference && content.decision.adopted);
  const reference = before && (await context.result(before));
  const call = evaluateCall(context, record);
  if (!reference || !call) {
    findings.missing('decisions', place, 'what the stage was compared with is not here');
    return;
  }
  const tasks = (call.input as EvaluateInput).suites.find(({ name }) => name === DEV_SUITE)?.tasks.length ?? 0;
  const [old, now] = [devScore(reference.evaluation, tasks), devScore(own.evaluation, tasks)];
  const config = configOf(context, record, call);
  if (!old || !now)
    findings.equal('decisions', place, { adopted: true, reason: `there is no suite ${DEV_SUITE} to decide on` }, found, stage);
  else if (config === undefined) findings.missing('decisions', place, 'the settings of the run that the stage is from are not here');
  else findings.equal('decisions', place, decideAdoption({ before: old, after: now, ...config.adoption }), found, stage);
}

function devScore({ suites }: EvaluateResult, tasks: number): AdoptionScore | undefined {
  const found = suites.find(({ name }) => name === DEV_SUITE);
  return found && { mean: found.mean, standardError: found.standardError, episodes: tasks * found.scores.length };
}

/** The settings that a stage ran with: those of its evaluation's input, which may be of another run. */
function configOf(context: AuditContext, record: StageRecord, call: Call | undefined): RunConfig | undefined {
  if (!record.observed.reusedFrom) return context.opened?.content.config;
  return (inputOf(call?.history ?? { events: [] }) as EvaluationInput | undefined)?.config;
}

/** What PPO and the critic warm-up trained on, made again from verdicts and tokens. */
export async function checkRewards(context: AuditContext, record: StageRecord): Promise<void> {
  const { findings, reader } = context;
  const { stage, inputs } = record.content;
  const result = await context.result(record);
  const config = configOf(context, record, evaluateCall(context, record));
  if (!result?.reward || !config) return;
  const [first] = result.batches;
  for (const { purpose, chunks, rewarded, meanReward, droppedNoVerdict } of result.batches) {
    if (!rewarded || !first) continue;
    const place = `batch ${rewarded.sha256.slice(0, 12)} of ${stage}, ${purpose}`;
    await context.attempt('rewards', place, async () => {
      const key = { runKey: '', stage, purpose };
      const calibration = { kind: 'calibration', uri: `artifact:${inputs.calibration}`, sha256: inputs.calibration, bytes: 0 } as const;
      let scored: readonly RewardedEpisode[] = [];
      const store = {
        readJson: <T>(ref: { sha256: string }) => reader.readJson<T>(ref),
        readJsonLines: <T>(ref: { sha256: string }) => reader.readJsonLines<T>(ref),
        putJsonLines: async (kind: ArtifactKind, values: readonly unknown[]) => {
          scored = values as readonly RewardedEpisode[];
          return await reader.putJsonLines(kind, values);
        },
      };
      const again = await reward(
        { store },
        { key, chunks, familyChunks: first.chunks, calibration, reward: result.reward ?? 'fdr', settings: config.reward },
      );
      findings.count('rewards', scored.length);
      findings.equal(
        'rewards',
        `result of ${stage}, batch ${purpose}`,
        { meanReward: again.meanReward, droppedNoVerdict: again.droppedNoVerdict },
        { meanReward, droppedNoVerdict },
        stage,
      );
      if (again.batch.sha256 === rewarded.sha256) return;
      const stored = await reader.readJsonLines<RewardedEpisode>(rewarded);
      for (const [i, expected] of scored.entries())
        if (!findings.equal('rewards', `${place}, ${expected.episodeId}`, expected, stored[i], stage)) return;
      findings.problem(
        'rewards',
        place,
        show(scored.map(({ episodeId }) => episodeId)),
        show(stored.map(({ episodeId }) => episodeId)),
        stage,
      );
    });
  }
}
