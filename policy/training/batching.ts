/**
 * How episodes become optimizer steps and micro-batches. A step's gradient is a sum over its sequences with one global
 * denominator, so how it is cut into micro-batches changes speed and memory, never the result beyond rounding.
 */
import { deriveSeed, Random } from '../../method/seeds.ts';
import { rowsWithin } from '../batch.ts';
import type { SequenceBatch, TrainerClient } from '../types.ts';

/** What batching needs of an episode. */
export interface TokenSequence {
  readonly tokens: readonly number[];
  readonly turnIds: readonly number[];
}

/** Padded tokens of one micro-batch, at most (a longer single sequence still goes alone). */
export const TOKEN_BUDGET = 4096;

/** 1 at the agent's tokens. The first token is nobody's prediction. */
export function agentMask(sequence: TokenSequence): number[] {
  return sequence.turnIds.map((turn, i) => (turn >= 0 && i > 0 ? 1 : 0));
}
export function agentTokenCount(sequence: TokenSequence): number {
  return agentMask(sequence).reduce((sum, one) => sum + one, 0);
}

/** Tokens of the longest sequence. */
export function longestOf(sequences: readonly TokenSequence[]): number {
  return sequences.reduce((longest, { tokens }) => Math.max(longest, tokens.length), 0);
}

/** Sequence indices of each optimizer step of one epoch: a shuffle that depends on (seed, epoch) alone, cut into equal parts. */
export function epochSteps(count: number, sequencesPerStep: number, seed: number, epoch: number): number[][] {
  const order = new Random(deriveSeed('epoch-order', seed, epoch)).shuffle(Array.from({ length: count }, (_, i) => i));
  const steps: number[][] = [];
  for (let start = 0; start < order.length; start += sequencesPerStep) steps.push(order.slice(start, start + sequencesPerStep));
  return steps;
}

/** Groups of similar length whose padded size, in the shapes that steps are recorded for, stays within the budget; the same for the same set of indices. */
export function microBatches(sequences: readonly TokenSequence[], indices: readonly number[], budget: number = TOKEN_BUDGET): number[][] {
  const length = (i: number): number => sequences[i]!.tokens.length;
  const sorted = [...indices].sort((a, b) => length(b) - length(a) || a - b);
  const groups: number[][] = [];
  let group: number[] = [];
  for (const index of sorted) {
    // Sorted longest first: the group's first sequence sets its padded length.
    if (group.length > 0 && group.length === rowsWithin(budget, length(group[0]!))) {
      groups.push(group);
      group = [];
    }
    group.push(index);
  }
  if (group.length > 0) groups.push(group);
  return groups;
}

/** The sequences `indices`, padded on the right. */
export function pack(sequences: readonly TokenSequence[], indices: readonly number[]): SequenceBatch {
  const length = Math.max(...indices.map((i) => sequences[i]!.tokens.length));
  return {
    rows: indices.length,
    length,
    tokens: padded(
      indices.map((i) => sequences[i]!.tokens),
      length,
    ),
    mask: padded(
      indices.map((i) => agentMask(sequences[i]!)),
      length,
    ),
  };
}

/** Per-token arrays as rows of one padded, row-major array. */
export function padded(rows: readonly ArrayLike<number>[], length: number): number[] {
  const flat = new Array<number>(rows.length * length).fill(0);
  rows.forEach((row, r) => {
    for (let i = 0; i < row.length; i++) flat[r * length + i] = row[i]!;
  });
  return flat;
}

/** Per-token outputs of every sequence, each as long as its sequence. */
export async function forwardAll(
  trainer: TrainerClient,
  handle: string,
  output: 'logprobs' | 'values',
  sequences: readonly TokenSequence[],
  options: { readonly tokenBudget?: number | undefined; readonly signal: AbortSignal },
): Promise<number[][]> {
  const results: number[][] = sequences.map(() => []);
  for (const indices of microBatches(
    sequences,
    sequences.map((_, i) => i),
    options.tokenBudget,
  )) {
    options.signal.throwIfAborted();
    const batch = pack(sequences, indices);
    const values = await trainer.forward(handle, output, batch);
    indices.forEach((index, r) => {
      results[index] = values.slice(r * batch.length, r * batch.length + sequences[index]!.tokens.length);
    });
  }
  return results;
}
