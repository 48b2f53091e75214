/** What the chaos command found, as JSON (`--result-file`) and as a table. docs/durability.md says how each figure is measured. */
import Table from 'cli-table3';
import { z } from 'zod';

export const CHAOS_RESULT_SCHEMA = 'terminal-rsi/chaos-result@1';

const sha256 = z.string().regex(/^[0-9a-f]{64}$/);
const seconds = z.number().min(0);

export const killSchema = z.object({
  /** A process, `torn checkpoint`, `full disk` or `Docker daemon`. */
  process: z.string().min(1),
  /** What was at work, at which point of it, and what else there is to tell. */
  moment: z.string().min(1),
  secondsUntilProgress: seconds,
  repeatedSeconds: seconds,
});
export type Kill = z.infer<typeof killSchema>;

const differenceSchema = z.object({
  stage: z.string(),
  name: z.string(),
  kind: z.string(),
  /** Hash, or `missing`. */
  undisturbed: z.string(),
  disturbed: z.string(),
});

export const chaosResultSchema = z.object({
  schema: z.literal(CHAOS_RESULT_SCHEMA),
  seed: z.number().int().min(0),
  profile: z.string(),
  sandbox: z.enum(['embedded', 'docker']),
  /** Whether the disturbed run finished and nothing differs. */
  identical: z.boolean(),
  kills: z.array(killSchema),
  hashes: z.object({
    final: sha256,
    /** Stage → what it made, of the undisturbed run. */
    stages: z.record(z.string(), z.object({ policy: sha256, critic: sha256.optional(), evaluation: sha256, ledger: sha256.optional() })),
    /** Every compared thing by name: artifacts, results of activities, ledger contents. */
    all: z.record(z.string(), sha256),
  }),
  differences: z.array(differenceSchema),
  /** Why the disturbed run did not finish; absent when it did. */
  failure: z.string().optional(),
  undisturbedSeconds: seconds,
  disturbedSeconds: seconds,
  /** Disturbances that could not happen here, with the reason. */
  skipped: z.array(z.string()),
});
export type ChaosResult = z.infer<typeof chaosResultSchema>;

/** The kills as a table, one a row. */
export function killTable(kills: readonly Kill[]): string {
  const table = new Table({
    head: ['#', 'what', 'when', 'until progress', 'repeated'],
    colAligns: ['right', 'left', 'left', 'right', 'right'],
    colWidths: [null, null, 90, null, null],
    wordWrap: true,
    style: { head: [], border: [], compact: true },
  });
  table.push(
    ...kills.map(({ process, moment, secondsUntilProgress, repeatedSeconds }, i) => [
      ...[i + 1, process, moment, `${secondsUntilProgress.toFixed(1)} s`, `${repeatedSeconds.toFixed(1)} s`],
    ]),
  );
  return table.toString();
}
