/**
 * The training interface: what the stage loops (policy/training/) ask of a trainer. The verbs follow the Tinker training
 * API (load, forward, forwardBackward, optimStep, save), so that a distributed trainer can stand in for the embedded one.
 */
import type { EpisodeTokens } from '../environment/types.ts';
import type { ArtifactRef } from '../records/types.ts';

/**
 * `config.json` of a policy, checked and with the defaults filled in (policy/model-config.ts reads it): a decoder of one of the families there,
 * with the field names of Hugging Face transformers.
 */
export interface ModelConfig {
  readonly architectures: readonly string[];
  readonly model_type: string;
  readonly vocab_size: number;
  readonly hidden_size: number;
  readonly intermediate_size: number;
  readonly num_hidden_layers: number;
  readonly num_attention_heads: number;
  readonly num_key_value_heads: number;
  readonly head_dim: number;
  readonly max_position_embeddings: number;
  readonly rms_norm_eps: number;
  readonly rope_theta: number;
  /** Absent: plain rotary positions. */
  readonly rope_scaling?: RopeScaling;
  /** Biases on the attention's four projections; absent: as the family has them. */
  readonly attention_bias?: boolean;
  /** false: an output matrix of its own, not the embeddings. */
  readonly tie_word_embeddings: boolean;
  readonly bos_token_id?: number;
  /** One or several tokens that end a text; `stopTokens` of policy/model-config.ts gives the list. */
  readonly eos_token_id: number | readonly number[];
  /** Values in memory are float32 whatever the file's type was. */
  readonly torch_dtype: 'float32';
  /** Fields of the file that we do not interpret; an export writes them back. */
  readonly other?: Readonly<Record<string, unknown>>;
}

/** `rope_scaling` of transformers 4, `rope_parameters` of 5; formulas in policy/rope.ts. */
export type RopeScaling =
  | { readonly rope_type: 'linear' | 'dynamic'; readonly factor: number }
  | {
      readonly rope_type: 'llama3';
      readonly factor: number;
      readonly low_freq_factor: number;
      readonly high_freq_factor: number;
      readonly original_max_position_embeddings?: number;
    }
  | {
      readonly rope_type: 'yarn';
      readonly factor: number;
      readonly original_max_position_embeddings?: number;
      readonly attention_factor?: number;
      readonly beta_fast?: number;
      readonly beta_slow?: number;
      readonly mscale?: number;
      readonly mscale_all_dim?: number;
      readonly truncate?: boolean;
    };

/** Sequences of one micro-batch, padded on the right to the longest; B sequences of T tokens, row-major. */
export interface SequenceBatch {
  readonly rows: number;
  readonly length: number;
  /** [B*T] token ids; 0 at padding. */
  readonly tokens: readonly number[];
  /** [B*T] 1 at tokens that are predicted and count in the loss (agent tokens), 0 elsewhere. Column 0 is always 0. */
  readonly mask: readonly number[];
}

/** Losses of docs/method.md, RSR 6 and RPR. Arrays are [B*T], used at mask = 1 only. `denominator` is global over the optimizer step. */
export type LossSpec =
  | { readonly kind: 'sft'; readonly denominator: number }
  | {
      readonly kind: 'ppo';
      readonly denominator: number;
      readonly advantages: readonly number[];
      /** Behaviour log-probabilities recorded at sampling. */
      readonly oldLogprobs: readonly number[];
      readonly clipLow: number;
      readonly clipHigh: number;
      /** Dual clip c for negative advantages (>1), or 0 for none. */
      readonly dualClip: number;
      /** Weight of the k3 estimate of KL(policy ‖ reference) with reference log-probabilities, or 0. */
      readonly klCoefficient: number;
      readonly referenceLogprobs: readonly number[];
      readonly entropyCoefficient: number;
    }
  | {
      readonly kind: 'value';
      readonly denominator: number;
      readonly returns: readonly number[];
      readonly oldValues: readonly number[];
      /** Half-width of the value clip; 0 switches clipping off. */
      readonly clip: number;
    };

/** Sums over the micro-batch's masked tokens, so that callers can add micro-batches up and divide once. */
export interface LossSums {
  /** The loss this micro-batch adds to the step (already divided by `denominator`). */
  readonly loss: number;
  readonly tokens: number;
  /** ppo only: sums over tokens. */
  readonly clipped?: number;
  readonly kl?: number; // k1: old - new
  readonly klReference?: number;
  readonly entropy?: number;
}

export interface AdamSettings {
  readonly learningRate: number;
  readonly beta1: number;
  readonly beta2: number;
  readonly epsilon: number;
  readonly weightDecay: number;
  /** Global gradient-norm clip. */
  readonly maxGradientNorm: number;
}

export type ModelRole = 'actor' | 'critic';

/** A trainer that holds models in memory. Handles die with the trainer process: calls then fail with TrainerLostError (retryable). */
export interface TrainerClient {
  /**
   * Loads a model for training and returns its handle. `directory` is in Hugging Face layout. For a critic from a policy directory the
   * trunk is taken over and the value head starts at zero. `optimizer` is a directory written by `save`, or undefined for new moments.
   */
  load(request: { role: ModelRole; directory: string; optimizer?: string }): Promise<string>;
  /** Per-token outputs, [B*T], 0 outside the mask: log-probability of token t given its prefix, or the value at the position that predicts t. */
  forward(handle: string, output: 'logprobs' | 'values', batch: SequenceBatch): Promise<number[]>;
  /** Adds this micro-batch's gradients to the handle's accumulator. A loss that is not finite is returned, and drops what was accumulated. */
  forwardBackward(handle: string, loss: LossSpec, batch: SequenceBatch): Promise<LossSums>;
  /** Global-norm clip, Adam, and a cleared accumulator. Throws NumericalError before the update if the norm is not finite. */
  optimStep(handle: string, adam: AdamSettings): Promise<{ gradientNorm: number; step: number }>;
  /** Writes weights (and config, tokenizer for an actor) and, if asked, moments and step count. Directories must not exist. */
  save(handle: string, request: { directory: string; optimizer?: string }): Promise<void>;
  release(handle: string): Promise<void>;
}

/** What every stage loop gets from its activity. */
export interface TrainingContext {
  readonly trainer: TrainerClient;
  /** Where resumable checkpoints of this activity live; stable over attempts. */
  readonly checkpointDirectory: string;
  /** Called after every optimizer step; the activity heartbeats with it. */
  progress(progress: TrainingProgress): void;
  readonly signal: AbortSignal;
}
export interface TrainingProgress {
  readonly step: number;
  readonly totalSteps: number;
  readonly loss: number;
}

/** An episode with its scalar reward, placed on the last agent token. */
export interface RewardedEpisode extends EpisodeTokens {
  readonly suite: string;
  readonly taskId: string;
  readonly family: string;
  readonly passed: boolean;
  readonly reward: number;
}

export interface FineTuneInput {
  readonly actorDirectory: string;
  readonly examples: readonly EpisodeTokens[];
  readonly epochs: number;
  readonly sequencesPerStep: number;
  readonly adam: AdamSettings;
  /** Shuffles the examples; derived from (run seed, stage). */
  readonly seed: number;
  readonly outputDirectory: string;
}
export interface FineTuneMetrics {
  readonly steps: number;
  readonly tokens: number;
  readonly epochLosses: readonly number[];
}

/** docs/method.md, RPR: exactly four value-only epochs over one fixed batch. */
export interface WarmUpInput {
  readonly actorDirectory: string;
  /** The critic inherited from the previous RPR stage (weights only); undefined: the actor's trunk with a zero value head. */
  readonly criticDirectory?: string;
  readonly batch: readonly RewardedEpisode[];
  readonly gamma: number;
  readonly lambda: number;
  readonly sequencesPerStep: number;
  readonly adam: AdamSettings;
  readonly seed: number;
  readonly outputDirectory: string;
  readonly optimizerDirectory: string;
}
export interface WarmUpMetrics {
  readonly epochs: readonly {
    readonly valueLoss: number;
    /** undefined when the returns are constant. */
    readonly explainedVariance?: number;
  }[];
  readonly steps: number;
}

export interface PpoInput {
  readonly actorDirectory: string;
  readonly criticDirectory: string;
  readonly actorOptimizer?: string;
  readonly criticOptimizer?: string;
  /** The stage's starting policy; its log-probabilities are the reference of the KL monitor and penalty. */
  readonly referenceDirectory: string;
  readonly batch: readonly RewardedEpisode[];
  readonly gamma: number;
  readonly lambda: number;
  readonly epochs: number;
  readonly sequencesPerStep: number;
  readonly clipLow: number;
  readonly clipHigh: number;
  readonly dualClip: number;
  readonly valueClip: number;
  readonly klCoefficient: number;
  readonly entropyCoefficient: number;
  readonly actorAdam: AdamSettings;
  readonly criticAdam: AdamSettings;
  readonly stopRules: StopRules;
  /** Mean agent tokens per turn at the stage's start, or undefined in the first iteration. */
  readonly initialTokensPerTurn?: number;
  readonly seed: number;
  readonly output: { readonly actor: string; readonly critic: string; readonly actorOptimizer: string; readonly criticOptimizer: string };
}
/** Limits beyond which a PPO stage stops with what it has. */
export interface StopRules {
  /** Mean of (old - new) log-probability within one iteration. */
  readonly maxKl: number;
  readonly maxKlToStart: number;
  readonly minEntropy: number;
  /** Agent tokens per turn relative to the stage's start. */
  readonly maxTurnLengthRatio: number;
  readonly maxClipFraction: number;
  readonly maxGradientNorm: number;
}
export interface PpoMetrics {
  readonly steps: number;
  readonly policyLoss: number;
  readonly valueLoss: number;
  readonly meanReward: number;
  readonly successRate: number;
  readonly kl: number;
  readonly klToStart: number;
  readonly entropy: number;
  readonly clipFraction: number;
  readonly gradientNorm: number;
  readonly criticGradientNorm: number;
  readonly explainedVariance?: number;
  readonly tokensPerTurn: number;
  /** Name of the stop rule that fired, its value and limit. */
  readonly stop?: { readonly rule: keyof StopRules | 'nonFinite'; readonly value: number; readonly limit: number };
}

/** A policy, critic or optimizer directory as an artifact together with where it can be read on this machine. */
export interface MaterializedArtifact {
  readonly ref: ArtifactRef;
  readonly directory: string;
}
