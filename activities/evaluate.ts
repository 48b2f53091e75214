/** The numbers of one stage from the verdicts of its evaluations (records/evaluation.ts). */
import { buildEvaluation } from '../records/evaluation.ts';
import type { Calibration } from '../records/calibration.ts';
import type { EvaluateInput, EvaluateResult } from '../workflows/contract.ts';
import type { RolloutDependencies } from './dependencies.ts';

export async function evaluate({ store }: Pick<RolloutDependencies, 'store'>, input: EvaluateInput): Promise<EvaluateResult> {
  const calibration = await store.readJson<Calibration>(input.calibration);
  const { result } = await buildEvaluation({ suites: input.suites, repeats: input.repeats, calibration, store });
  return result;
}
