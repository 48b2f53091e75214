/**
 * Memory of training on a CPU, told from configurations and the shape of a micro-batch before anything is loaded. Counted are the tensors
 * that live at the peak of a step that is executed operation by operation, as each shape is once when it is recorded; replaying the recorded
 * function takes less. policy/memory.test.ts compares with the measured growth of a process. No TensorFlow here: workers use it too.
 */
import os from 'node:os';
import { UserError } from '../environment/errors.ts';
import { bucketLength, rowsWithin } from './batch.ts';
import { gpuMemory } from './gpu.ts';
import { attentionParts } from './model-config.ts';
import { countParameters } from './parameter-shapes.ts';
import type { ModelConfig, ModelRole } from './types.ts';

const FLOAT_BYTES = 4;
/** Process, libraries, compiled kernels and recorded functions. */
const BASE_BYTES = 0.4e9;
/** What the allocator holds beyond the tensors: freed pieces that the next request does not fit into. */
const FRAGMENTATION = 1.2;
/** Share of the memory up to which a step may keep all activations; beyond it they are computed twice. */
const ACTIVATION_SHARE = 0.3;

/** A micro-batch of all lanes together, padded. */
export interface BatchShape {
  readonly rows: number;
  readonly length: number;
}

/** Bytes of activations and their gradients at the peak of forward and backward pass. */
export function activationBytes(config: ModelConfig, { rows, length: T }: BatchShape, recompute: boolean): number {
  const { hidden_size: D, intermediate_size: F, num_hidden_layers: layers, vocab_size: V } = config;
  const q = config.num_attention_heads * config.head_dim;
  const k = config.num_key_value_heads * config.head_dim;
  const norms = attentionParts(config).qkNorm ? 2 * (q + k) : 0;
  // The probabilities of causal blocks: 5/8 of the square with four blocks.
  const probabilities = config.num_attention_heads * T * (T > 64 ? 5 / 8 : 1);
  // By position and layer. Forward: residual, units, projections, heads, rotations, attention with its copies, gated product.
  const forward = 6 * D + 2 * (q + 2 * k) + norms + (q + k) + 4 * q + 5 * k + probabilities + 5 * F;
  const backward = 4 * D + 2 * (q + 2 * k) + norms + 3 * q + 3 * F;
  const layer = forward + backward;
  // Logits, their softmax and the derivative.
  const head = 4 * V + 4 * D;
  // Computed twice: the inputs of all layers, one layer, and the one above it, whose pieces are still being freed.
  const perPosition = recompute ? layers * D + 2 * layer + head : layers * layer + head;
  return FRAGMENTATION * FLOAT_BYTES * rows * T * perPosition;
}

export interface TrainedRole {
  readonly role: ModelRole;
  readonly config: ModelConfig;
}
export interface MemoryPrediction {
  readonly weights: number;
  /** Gradients (one set for each lane) and moments. */
  readonly training: number;
  readonly activations: number;
  readonly total: number;
  /** Whether activations are computed twice to save memory. */
  readonly recompute: boolean;
}

/** Bytes of a stage that trains `roles` on micro-batches of at most `shape`, the roles one after the other. */
export function predictMemory(roles: readonly TrainedRole[], shape: BatchShape, lanes: number, limit = memoryLimit()): MemoryPrediction {
  const parameters = FLOAT_BYTES * roles.reduce((sum, { role, config }) => sum + countParameters(config, role), 0);
  const largest = (recompute: boolean): number => Math.max(...roles.map(({ config }) => activationBytes(config, shape, recompute)));
  const recompute = needsRecomputing(largest(false), limit);
  const [weights, training, activations] = [parameters, (lanes + 2) * parameters, largest(recompute)];
  return { weights, training, activations, total: BASE_BYTES + weights + training + activations, recompute };
}
/** Whether a step with so many bytes of activations should compute them twice. */
export function needsRecomputing(activations: number, limit = memoryLimit()): boolean {
  return activations > ACTIVATION_SHARE * limit;
}

/** Bytes that training has: of the GPU, where one computes, else of this machine or its container. */
export function memoryLimit(): number {
  const gpu = gpuMemory();
  if (gpu !== undefined) return gpu;
  const limit = process.constrainedMemory();
  return Math.min(os.totalmem(), limit > 0 ? limit : Infinity);
}

/** @throws UserError with the figures where training on sequences of up to `longest` tokens will not fit into the memory */
export function refuseWhatDoesNotFit(
  roles: readonly TrainedRole[],
  longest: number,
  tokenBudget: number,
  lanes = gpuMemory() === undefined ? Number(process.env['TERMINAL_RSI_TF_THREADS'] ?? 2) : 1,
  limit = memoryLimit(),
): void {
  const shape = { rows: rowsWithin(tokenBudget, longest), length: bucketLength(longest) };
  const { weights, training, activations, total } = predictMemory(roles, shape, lanes, limit);
  if (total <= limit) return;
  const gb = (bytes: number): string => `${(bytes / 1e9).toFixed(1)} GB`;
  throw new UserError(
    `training ${roles.map(({ role }) => role).join(' and ')} on ${shape.rows} x ${shape.length} tokens takes about ${gb(total)}: weights ${gb(weights)}, ` +
      `gradients and moments ${gb(training)}, activations ${gb(activations)}; the machine has ${gb(limit)}. ` +
      'Expected a smaller model or shorter episodes',
  );
}
