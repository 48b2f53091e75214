/** The monitors of a PPO iteration and the rules that stop it (docs/method.md, RPR). */
import type { PpoMetrics, StopRules } from '../types.ts';
import type { TokenSequence } from './batching.ts';

/** Sums over the agent tokens of the steps of one epoch. */
export interface EpochMonitors {
  tokens: number;
  /** old − new log-probability (k1). */
  kl: number;
  /** k3 estimate against the stage's starting policy. */
  klToStart: number;
  entropy: number;
  clipped: number;
}
export const emptyEpoch = (): EpochMonitors => ({ tokens: 0, kl: 0, klToStart: 0, entropy: 0, clipped: 0 });

/** What is known at the moment of the check; what is left out is not judged. */
export interface Monitored {
  readonly epoch?: EpochMonitors;
  readonly gradientNorm?: number;
  readonly turnLength?: number;
  readonly initialTurnLength?: number;
}

/** The first rule that is broken, in a fixed order, with its value and limit. */
export function firedRule(rules: StopRules, seen: Monitored): PpoMetrics['stop'] {
  const { epoch } = seen;
  const mean = (sum: number): number => sum / epoch!.tokens;
  const values: Partial<Record<keyof StopRules, number>> = {
    ...(epoch && {
      maxKl: mean(epoch.kl),
      maxKlToStart: mean(epoch.klToStart),
      minEntropy: mean(epoch.entropy),
      maxClipFraction: mean(epoch.clipped),
    }),
    ...(seen.turnLength !== undefined &&
      seen.initialTurnLength !== undefined && { maxTurnLengthRatio: seen.turnLength / seen.initialTurnLength }),
    ...(seen.gradientNorm !== undefined && { maxGradientNorm: seen.gradientNorm }),
  };
  for (const rule of ['maxKl', 'maxKlToStart', 'minEntropy', 'maxTurnLengthRatio', 'maxClipFraction', 'maxGradientNorm'] as const) {
    const value = values[rule];
    if (value === undefined) continue;
    const limit = rules[rule];
    if (rule === 'minEntropy' ? value < limit : value > limit) return { rule, value, limit };
  }
  return undefined;
}

/** Mean agent tokens per turn over a batch. */
export function tokensPerTurn(sequences: readonly TokenSequence[]): number {
  let tokens = 0;
  let turns = 0;
  for (const { turnIds } of sequences) {
    const own = turnIds.filter((turn) => turn >= 0);
    tokens += own.length;
    turns += new Set(own).size;
  }
  return tokens / turns;
}
