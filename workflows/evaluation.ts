/** Evaluation of one policy (docs/method.md, Evaluation): `repeats` independent batches over all suites, then the table. */
import { workflowInfo } from '@temporalio/workflow';
import { evaluate } from './activity-options.ts';
import { EVALUATION_PURPOSE } from './contract.ts';
import type { ChunkResult, EvaluateResult, EvaluationInput } from './contract.ts';
import { PauseGate } from './control.ts';
import { episodeBatch } from './episodes.ts';

export async function evaluation(input: EvaluationInput): Promise<EvaluateResult> {
  const { root, runKey, stage, config, policy, suites, calibration } = input;
  const gate = new PauseGate();
  const repeats: (readonly ChunkResult[])[] = [];
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
        },
      ],
    });
    repeats.push(batch.chunks);
  }
  await gate.open();
  return await evaluate.executeWithOptions({ summary: `${stage} · evaluation table` }, [
    { key: { runKey, stage, purpose: 'evaluation' }, policy, suites, calibration, repeats },
  ]);
}
