/** Evaluation of one policy (docs/method.md, Evaluation): `repeats` independent batches over all suites, then the table. */
import { workflowInfo } from '@temporalio/workflow';
import { evaluate } from './activity-options.ts';
import { EVALUATION_PURPOSE } from './contract.ts';
import type { EvaluateResult, EvaluationInput } from './contract.ts';
import type { ArtifactRef } from '../records/types.ts';
import { PauseGate } from './control.ts';
import { counted } from './details.ts';
import { episodeBatch } from './episodes.ts';
import { signalsPerBatch } from './profiles.ts';

export async function evaluation(input: EvaluationInput): Promise<EvaluateResult> {
  const { root, runKey, stage, config, policy, suites, calibration } = input;
  const gate = new PauseGate();
  const repeats: (readonly ArtifactRef[])[] = [];
  const groups = suites.map(({ tasks }) => ({ tasks, harness: 'shell' as const, samples: 1 }));
  for (let repeat = 1; repeat <= config.evaluation.repeats; repeat++) {
    const batch = await gate.run(episodeBatch, {
      workflowId: `${workflowInfo().workflowId}/${repeat}`,
      staticSummary: `${stage} · evaluation ${repeat} of ${config.evaluation.repeats}`,
      args: [
        {
          key: { runKey, stage, purpose: `${EVALUATION_PURPOSE}${repeat}` },
          root,
          runSeed: config.seed,
          policy,
          sandbox: config.sandbox,
          temperature: config.evaluation.temperature,
          rollout: config.rollout,
          groups,
          signals: signalsPerBatch(config),
        },
      ],
    });
    repeats.push(batch.chunks);
  }
  await gate.open();
  return await evaluate.executeWithOptions(
    { summary: `${stage} · evaluation table · ${counted(suites.length, 'suite')} × ${counted(repeats.length, 'repeat')}` },
    [{ key: { runKey, stage, purpose: 'evaluation' }, policy, suites, calibration, repeats }],
  );
}
