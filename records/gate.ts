/**
 * The gate file of a dataset (`npm run tasks -- check`): which of its tasks are sound, in which sandbox that was seen, and why the others are
 * not. Training takes the accepted ones alone, and only as long as their files are those that were checked.
 */
import { readFile, rename, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { z } from 'zod';
import { UserError } from '../environment/errors.ts';

const verdictSchema = z.strictObject({
  outcome: z.enum(['passed', 'failed', 'no-verdict']),
  reward: z.number().optional(),
  /** Type of the trial's error, where it had one. */
  error: z.string().optional(),
  /** Of the verifier alone. */
  seconds: z.number(),
});
const taskSchema = z.strictObject({
  id: z.string(),
  name: z.string().optional(),
  /** Of the directory's files; '' for one that does not load. */
  checksum: z.string(),
  accepted: z.boolean(),
  /** Whether training can use it too: one instruction, and a verdict that a fresh sandbox gives as well. */
  trainable: z.boolean(),
  /** Why it is not accepted, or not trainable. */
  reasons: z.array(z.string()),
  /** What is worth knowing of an accepted one: a slow verifier, no reference solution. */
  notes: z.array(z.string()),
  verdicts: z.strictObject({ nop: z.array(verdictSchema), oracle: z.array(verdictSchema) }),
  validChecks: z.array(z.strictObject({ name: z.string(), weight: z.number() })),
  /** Repeats of the same episode got different verdicts. */
  flaky: z.boolean(),
  /** Probes that earned more than doing nothing where the task itself says that it is verified. */
  hackedBy: z.array(z.string()),
});
export const gateSchema = z.strictObject({
  schema: z.literal('terminal-rsi/gate@1'),
  /** Version of this program, and a hash of the sources that decide the verdicts. */
  tool: z.strictObject({ version: z.string(), code: z.string() }),
  dataset: z.string(),
  sandbox: z.enum(['embedded', 'docker']),
  /** Episodes of each kind. */
  repeats: z.number().int(),
  tasks: z.array(taskSchema),
});
export type Gate = z.infer<typeof gateSchema>;
export type GateTask = z.infer<typeof taskSchema>;
export type GateVerdict = z.infer<typeof verdictSchema>;

/** Where the gate file of a dataset is, unless it is told otherwise: in its folder, or beside its file. */
export function gateFileOf(dataset: string): string {
  const [file = dataset] = dataset.split('#', 1);
  return path.join(path.extname(file) === '' ? file : path.dirname(file), 'gate.json');
}

/** @throws UserError naming the file and what was expected */
export async function readGate(file: string): Promise<Gate> {
  const text = await readFile(file, 'utf8').catch((error: unknown) => {
    throw new UserError(`${file}: no gate file (${(error as Error).message}); \`npm run tasks -- check DIR\` makes it`);
  });
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new UserError(`${file}: not JSON: ${(error as Error).message}`);
  }
  const parsed = gateSchema.safeParse(value);
  if (parsed.success) return parsed.data;
  throw new UserError(`${file}: not a gate file of this version:\n${z.prettifyError(parsed.error)}`);
}

export async function writeGate(file: string, gate: Gate): Promise<void> {
  await writeFile(`${file}.part`, `${JSON.stringify(gateSchema.parse(gate), null, 2)}\n`);
  await rename(`${file}.part`, file);
}
