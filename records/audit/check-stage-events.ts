/** The activities of one stage in order: what one returned is what the next was given, and what the stage's record says it made. */
import type {
  ChunkResult,
  CollectChunksInput,
  EvaluateInput,
  EvaluateResult,
  FineTuneActivityInput,
  FineTuneResult,
  PpoActivityInput,
  PpoResult,
  RewardInput,
  RewardResult,
  RewriteResult,
  RolloutInput,
  RolloutResult,
  VerifyInput,
  VerifyResult,
  WarmUpActivityInput,
  WarmUpResult,
} from '../../workflows/contract.ts';
import type { StageRecord } from '../lineage.ts';
import type { ArtifactRef } from '../types.ts';
import type { AuditContext, Call, StoredResult } from './context.ts';

type Equal = (place: string, expected: unknown, found: unknown) => void;
const hash = (ref: ArtifactRef | undefined): string | undefined => ref?.sha256;
const hashes = (refs: readonly Pick<ArtifactRef, 'sha256'>[]): string[] => refs.map(({ sha256 }) => sha256);

export async function checkStageEvents(context: AuditContext, record: StageRecord): Promise<void> {
  const result = await context.result(record);
  const histories = context.historiesOf(record);
  if (!result) return;
  if (histories.length === 0) {
    context.findings.missing('events', `activities of ${record.content.stage}`, 'no history of the stage is here');
    return;
  }
  const equal: Equal = (place, expected, found) => void context.findings.equal('events', place, expected, found, record.content.stage);
  const calls = histories.flatMap((history) => context.calls(history)).filter(({ trace }) => trace.outcome === 'completed');
  await checkBatches(context, record, calls, equal);
  checkEvaluate(record, calls, result, equal);
  if (result.kind === 'rsr') checkRsr(record, calls, result, equal);
  if (result.kind === 'rpr') checkRpr(context, record, calls, result, equal);
}

const of = <I, O>(calls: readonly Call[], type: string): (Call & { readonly input: I; readonly result: O })[] =>
  calls.filter(({ trace }) => trace.type === type) as (Call & { readonly input: I; readonly result: O })[];

/** rollout → verify → the list of chunks, which is an artifact. */
async function checkBatches(context: AuditContext, record: StageRecord, calls: readonly Call[], equal: Equal): Promise<void> {
  const listed: string[] = [];
  for (const call of of<CollectChunksInput, ArtifactRef>(calls, 'collectChunks')) {
    const again = await context.reader.putJsonLines('chunks', call.input.chunks);
    equal(`${call.place}, input.chunks`, call.result.sha256, again.sha256);
    listed.push(call.result.sha256);
    const same = calls.filter(({ history }) => history === call.history);
    const rolled = of<RolloutInput, RolloutResult>(same, 'rollout');
    const verified = of<VerifyInput, VerifyResult>(same, 'verify');
    for (const [i, chunk] of call.input.chunks.entries()) checkChunk(chunk, `${call.place}, input.chunks[${i}]`, rolled, verified, equal);
  }
  const { chunks, evaluationChunks } = record.content.outputs;
  const named = [...chunks, ...evaluationChunks].map(({ sha256 }) => sha256);
  equal(
    `${context.place(record)}, content.outputs: chunks, against what the batches returned`,
    [...new Set(listed)].sort(),
    [...new Set(named)].sort(),
  );
}

function checkChunk(
  chunk: ChunkResult,
  place: string,
  rolled: readonly (Call & { readonly input: RolloutInput; readonly result: RolloutResult })[],
  verified: readonly (Call & { readonly input: VerifyInput; readonly result: VerifyResult })[],
  equal: Equal,
): void {
  const rollout = rolled.find(({ result }) => hash(result.episodes) === hash(chunk.rollout.episodes));
  equal(`${rollout?.place ?? place}, result against ${place}`, chunk.rollout, rollout?.result);
  const verify = verified.find(({ input }) => hash(input.episodes) === hash(chunk.rollout.episodes));
  equal(`${verify?.place ?? place}, input.snapshots`, hash(chunk.rollout.snapshots), hash(verify?.input.snapshots));
  equal(`${verify?.place ?? place}, result against ${place}`, chunk.verify, verify?.result);
}

function checkEvaluate(record: StageRecord, calls: readonly Call[], result: StoredResult, equal: Equal): void {
  for (const { place, input, result: told } of of<EvaluateInput, EvaluateResult>(calls, 'evaluate')) {
    equal(`${place}, input.policy`, hash(result.policy), hash(input.policy));
    equal(`${place}, input.calibration`, record.content.inputs.calibration, hash(input.calibration));
    equal(`${place}, input.repeats`, hashes(result.evaluation.chunks), hashes(input.repeats.flat()));
    equal(`${place}, result`, result.evaluation, told);
  }
}

function checkRsr(record: StageRecord, calls: readonly Call[], result: StoredResult, equal: Equal): void {
  const { inputs, outputs } = record.content;
  const rewrites = of<{ policy: ArtifactRef; chunk: number }, RewriteResult>(calls, 'rewrite').sort(
    (a, b) => a.input.chunk - b.input.chunk,
  );
  for (const { place, input } of rewrites) equal(`${place}, input.policy`, inputs.policy, hash(input.policy));
  const at = rewrites[0]?.place ?? record.content.stage;
  equal(
    `${at} and following, runbooks`,
    hashes(outputs.runbooks),
    rewrites.map(({ result: { runbooks } }) => runbooks.sha256),
  );
  const examples = rewrites.filter(({ result: { counts } }) => counts.kept > 0).map(({ result: made }) => made.examples.sha256);
  equal(`${at} and following, examples`, hashes(outputs.examples), examples);
  for (const { place, input, result: tuned } of of<FineTuneActivityInput, FineTuneResult>(calls, 'fineTuneActor')) {
    equal(`${place}, input.actor`, inputs.policy, hash(input.actor));
    equal(`${place}, input.examples`, hashes(outputs.examples), hashes(input.examples));
    equal(`${place}, result.actor`, hash(result.policy), hash(tuned.actor));
    equal(`${place}, result.metrics`, result.fineTune, tuned.metrics);
  }
}

function checkRpr(context: AuditContext, record: StageRecord, calls: readonly Call[], result: StoredResult, equal: Equal): void {
  const { inputs } = record.content;
  const rewards = of<RewardInput, RewardResult>(calls, 'reward');
  for (const batch of result.batches) {
    const call = rewards.find(({ input }) => input.key.purpose === batch.purpose);
    const at = call?.place ?? `reward of batch ${batch.purpose}`;
    equal(`${at}, result.batch`, hash(batch.rewarded), hash(call?.result.batch));
    equal(`${at}, input.chunks`, hashes(batch.chunks), hashes(call?.input.chunks ?? []));
    equal(`${at}, input.familyChunks`, hashes(result.batches[0]?.chunks ?? []), hashes(call?.input.familyChunks ?? []));
    equal(`${at}, input.calibration`, inputs.calibration, hash(call?.input.calibration));
    equal(`${at}, input.reward`, result.reward, call?.input.reward);
    if (!record.observed.reusedFrom) equal(`${at}, input.settings`, context.opened?.content.config.reward, call?.input.settings);
  }
  const batchOf = (purpose: string): string | undefined => hash(result.batches.find((batch) => batch.purpose === purpose)?.rewarded);
  let [actor, critic, criticOptimizer] = [inputs.policy, undefined as string | undefined, undefined as string | undefined];
  for (const { place, input, result: warm } of of<WarmUpActivityInput, WarmUpResult>(calls, 'warmUpCritic')) {
    equal(
      `${place}, input`,
      { actor, critic: inputs.critic, batch: batchOf('warm-up') },
      { actor: hash(input.actor), critic: hash(input.critic), batch: hash(input.batch) },
    );
    equal(`${place}, result.metrics`, result.warmUp, warm.metrics);
    [critic, criticOptimizer] = [hash(warm.critic), hash(warm.criticOptimizer)];
  }
  let actorOptimizer: string | undefined;
  const steps = of<PpoActivityInput, PpoResult>(calls, 'jointPpo').sort((a, b) => a.input.iteration - b.input.iteration);
  for (const [i, { place, input, result: step }] of steps.entries()) {
    const expected = { actor, critic, actorOptimizer, criticOptimizer, reference: inputs.policy, batch: batchOf(`ppo-${input.iteration}`) };
    const found = {
      actor: hash(input.actor),
      critic: hash(input.critic),
      actorOptimizer: hash(input.actorOptimizer),
      criticOptimizer: hash(input.criticOptimizer),
    };
    equal(`${place}, input`, expected, { ...found, reference: hash(input.reference), batch: hash(input.batch) });
    equal(`${place}, result.metrics`, result.ppo?.[i], step.metrics);
    actor = step.actor.sha256;
    [critic, actorOptimizer, criticOptimizer] = [hash(step.critic), hash(step.actorOptimizer), hash(step.criticOptimizer)];
  }
  const last = steps.at(-1)?.place ?? record.content.stage;
  equal(`${last}, result`, { actor: hash(result.policy), critic: hash(result.critic) }, { actor, critic });
}
