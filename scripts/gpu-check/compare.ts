/** What two devices computed, beside each other: which numbers must agree, and how closely. */
import type { Device } from '../../policy/tensorflow.ts';
import type { Placement } from './placement.ts';

export interface Trained {
  /** Of each step. */
  readonly losses: readonly number[];
  readonly gradientNorms: readonly number[];
  /** By how much each weight changed in all steps. */
  readonly moved: readonly number[];
}
/** What a device computed (compute.ts). */
export interface Computed {
  readonly device: Device;
  readonly fallbacks: readonly string[];
  readonly training: Readonly<Record<'sft' | 'value' | 'ppo', Trained>>;
  /** `training.sft` once more. */
  readonly again: Trained;
  /** Log-probabilities of given tokens, natural, by the sampler and by the training side. */
  readonly decoded: readonly number[];
  readonly evaluated: readonly number[];
  readonly placement: Placement;
}
export interface Comparison {
  readonly name: string;
  readonly difference: number;
  readonly tolerance: number;
  readonly passed: boolean;
}

/**
 * In float32 the order of a sum changes the seventh digit; ten steps and a division by small second moments raise that. TensorFloat-32, a wrong
 * kernel or a variable of another device are far beyond these: a step in TensorFloat-32 is off by about 1e-3.
 */
const TOLERANCE = { loss: 1e-4, gradientNorm: 1e-3, weights: 1e-2, logprob: 1e-4 };

/** `ours` against the CPU's numbers, and sampling against training on one device. */
export function compareDevices(ours: Computed, cpu: Computed): Comparison[] {
  const losses = (['sft', 'value', 'ppo'] as const).flatMap((kind) => {
    const [a, b] = [ours.training[kind], cpu.training[kind]];
    return [
      judge(`${kind}: loss of 10 steps, relative`, relative(a.losses, b.losses), TOLERANCE.loss),
      judge(`${kind}: gradient norm of 10 steps, relative`, relative(a.gradientNorms, b.gradientNorms), TOLERANCE.gradientNorm),
      judge(`${kind}: weights after 10 steps, of their way`, distance(a.moved, b.moved), TOLERANCE.weights),
    ];
  });
  return [
    ...losses,
    judge('sampling: log-probabilities', absolute(ours.decoded, cpu.decoded), TOLERANCE.logprob),
    judge('sampling against training on the device', absolute(ours.decoded, ours.evaluated), TOLERANCE.logprob),
  ];
}

/** Whether the same training gave the same bits. */
export function repeats({ training: { sft }, again }: Computed): boolean {
  return JSON.stringify(sft) === JSON.stringify(again);
}

function judge(name: string, difference: number, tolerance: number): Comparison {
  // A number that is none is no agreement.
  return { name, difference, tolerance, passed: difference <= tolerance };
}
function absolute(a: readonly number[], b: readonly number[]): number {
  return worst(a, b, (x, y) => Math.abs(x - y));
}
function relative(a: readonly number[], b: readonly number[]): number {
  return worst(a, b, (x, y) => Math.abs(x - y) / Math.max(Math.abs(y), 1e-3));
}
function worst(a: readonly number[], b: readonly number[], difference: (x: number, y: number) => number): number {
  if (a.length !== b.length || a.length === 0) return NaN;
  return a.reduce((most, x, i) => Math.max(most, difference(x, b[i]!)), 0);
}
/** |a − b| / |b|, Euclidean. */
function distance(a: readonly number[], b: readonly number[]): number {
  if (a.length !== b.length) return NaN;
  const norm = (values: readonly number[]): number => Math.sqrt(values.reduce((sum, value) => sum + value * value, 0));
  return norm(a.map((x, i) => x - b[i]!)) / norm(b);
}
