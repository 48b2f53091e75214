/**
 * Rotary position embedding and its scaling variants: by how much each pair of a head's dimensions turns per position. The variants keep
 * far positions within the angles that the model has seen; formulas and defaults are those of Hugging Face transformers 5
 * (`modeling_rope_utils.py`), against which policy/model-parity.test.ts compares.
 */
import type { ModelConfig, RopeScaling } from './types.ts';

/**
 * cos and signed sin, [length,head_dim] each, row-major: angle t · frequency j, the same for both halves of a head. The first half of
 * `signedSin` is negative, so that x·cos + swapHalves(x)·signedSin turns x in the rotate_half convention.
 */
export function ropeTables(config: ModelConfig, length: number): { readonly cos: Float32Array; readonly signedSin: Float32Array } {
  const { head_dim: headDim } = config;
  const { frequencies, amplitude } = ropeFrequencies(config);
  const half = headDim / 2;
  const cos = new Float32Array(length * headDim);
  const signedSin = new Float32Array(length * headDim);
  for (let j = 0; j < half; j++) {
    const frequency = frequencies[j] as number;
    for (let t = 0; t < length; t++) {
      const first = t * headDim + j;
      cos[first] = cos[first + half] = amplitude * Math.cos(t * frequency);
      signedSin[first + half] = amplitude * Math.sin(t * frequency);
      signedSin[first] = -(signedSin[first + half] as number);
    }
  }
  return { cos, signedSin };
}

/** Angle per position in radians for each of the head_dim/2 pairs, and the factor on cos and sin (1 except for YaRN). */
export function ropeFrequencies(config: ModelConfig): { readonly frequencies: readonly number[]; readonly amplitude: number } {
  const { head_dim: headDim, rope_theta: theta, rope_scaling: scaling } = config;
  const plain = Array.from({ length: headDim / 2 }, (_, j) => theta ** ((-2 * j) / headDim));
  switch (scaling?.rope_type) {
    // Dynamic NTK scaling sets in beyond max_position_embeddings, which is also the longest sequence that we run.
    case undefined:
    case 'dynamic':
      return { frequencies: plain, amplitude: 1 };
    case 'linear':
      return { frequencies: plain.map((frequency) => frequency / scaling.factor), amplitude: 1 };
    case 'llama3':
      return { frequencies: llama3(plain, scaling, originalLength(config, scaling)), amplitude: 1 };
    case 'yarn':
      return { frequencies: yarn(plain, scaling, theta, originalLength(config, scaling)), amplitude: yarnAmplitude(scaling) };
  }
}

type Of<T extends RopeScaling['rope_type']> = Extract<RopeScaling, { rope_type: T }>;

/** Positions that the model was pre-trained with. */
function originalLength(config: ModelConfig, scaling: Of<'llama3' | 'yarn'>): number {
  return scaling.original_max_position_embeddings ?? config.max_position_embeddings;
}

/** Llama 3.1: slow pairs are slowed down by the factor, fast ones stay, and those between are blended. */
function llama3(plain: readonly number[], scaling: Of<'llama3'>, length: number): number[] {
  const { factor, low_freq_factor: low, high_freq_factor: high } = scaling;
  return plain.map((frequency) => {
    const turns = (length * frequency) / (2 * Math.PI);
    if (turns < low) return frequency / factor;
    if (turns > high) return frequency;
    const share = (turns - low) / (high - low);
    return ((1 - share) * frequency) / factor + share * frequency;
  });
}

/** YaRN (Peng et al. 2023), "NTK by parts": a ramp over the pairs from unchanged (many turns within `length`) to divided by the factor. */
function yarn(plain: readonly number[], scaling: Of<'yarn'>, theta: number, length: number): number[] {
  const headDim = 2 * plain.length;
  /** The (fractional) pair that turns `turns` times within `length`. */
  const pairWith = (turns: number): number => (headDim * Math.log(length / (turns * 2 * Math.PI))) / (2 * Math.log(theta));
  let [low, high] = [pairWith(scaling.beta_fast ?? 32), pairWith(scaling.beta_slow ?? 1)];
  if (scaling.truncate ?? true) [low, high] = [Math.floor(low), Math.ceil(high)];
  low = Math.max(low, 0);
  high = Math.min(high, headDim - 1);
  if (low === high) high += 0.001;
  return plain.map((frequency, j) => {
    const scaled = Math.min(Math.max((j - low) / (high - low), 0), 1);
    return (frequency / scaling.factor) * scaled + frequency * (1 - scaled);
  });
}

/** YaRN's temperature on the attention scores, as a factor on queries and keys alike. */
function yarnAmplitude({ factor, attention_factor, mscale, mscale_all_dim }: Of<'yarn'>): number {
  if (attention_factor !== undefined) return attention_factor;
  const temperature = (weight: number): number => (factor <= 1 ? 1 : 0.1 * weight * Math.log(factor) + 1);
  return mscale && mscale_all_dim ? temperature(mscale) / temperature(mscale_all_dim) : temperature(1);
}
