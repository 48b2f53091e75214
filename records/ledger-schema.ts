/** What stands in the records of a ledger (records/ledger.ts): a deterministic `content` and an `observed` part, by kind. */
import { z } from 'zod';
import { runConfigSchema } from '../workflows/config.ts';

const sha256 = z.string().regex(/^[0-9a-f]{64}$/);
const whole = z.number().int().min(0);
const artifact = z.object({ kind: z.string(), uri: z.string(), sha256, bytes: whole });
const reference = z.object({ runKey: z.string(), index: whole, hash: sha256 });

/** One workflow's history, stored as an artifact when the record was written. */
const history = z.object({
  workflowId: z.string(),
  runId: z.string(),
  type: z.string(),
  events: whole,
  /** False for the training run itself, which was still open: its later history begins with these events. */
  complete: z.boolean(),
  artifact,
});
/** How the activities of one type went, over the histories of a record. */
const activityTotals = z.object({
  completed: whole,
  /** Started attempts; those beyond `completed` are the work of failures, lost workers and pauses. */
  attempts: whole,
  failed: whole,
  seconds: z.number().min(0),
  /** From scheduled to the start of the last attempt: queue, and what lost attempts took. */
  waitSeconds: z.number().min(0),
});

const opened = z.object({
  kind: z.literal('opened'),
  content: z.object({
    config: runConfigSchema,
    configHash: sha256,
    seed: whole,
    /** Hash of the sources. */
    code: z.string(),
    basePolicy: sha256,
    tasksHash: sha256,
    /** Of a fork: where it begins, and which settings differ from those of the run it goes on from. */
    fork: z
      .object({ from: z.string(), changes: z.array(z.object({ path: z.string(), before: z.unknown(), after: z.unknown() })) })
      .optional(),
  }),
  observed: z.object({
    recordedAt: z.string(),
    workflowId: z.string(),
    codeVersion: z.string(),
    /** Last record of the run that a fork goes on from. */
    forkedFrom: reference.optional(),
  }),
});

const counts = z.object({
  episodes: whole,
  passed: whole,
  failed: whole,
  noVerdict: whole,
  agentTokens: whole,
  totalTokens: whole,
  timeouts: whole,
});
const stage = z.object({
  kind: z.literal('stage'),
  content: z.object({
    stage: z.string(),
    stageKind: z.enum(['base', 'rsr', 'rpr']),
    round: whole,
    /** Hash of inputs, settings and code: equal keys, equal stages. */
    stageKey: sha256,
    configHash: sha256,
    seed: whole,
    code: z.string(),
    inputs: z.object({ policy: sha256, critic: sha256.optional(), calibration: sha256, tasksHash: sha256, reference: sha256.optional() }),
    /** The stage's result (kind `stage`), which names all that it made; and the main ones of those by name. */
    result: artifact,
    outputs: z.object({
      policy: artifact,
      critic: artifact.optional(),
      evaluation: artifact,
      chunks: z.array(artifact),
      evaluationChunks: z.array(artifact),
      runbooks: z.array(artifact),
      examples: z.array(artifact),
      batches: z.array(artifact),
    }),
    counts: z.object({
      training: counts,
      evaluation: z.object({ episodes: whole, tokens: whole, noVerdict: whole }),
      /** Rule → how often: the screens, `no-verdict`, and what rewriting dropped. */
      dropped: z.record(z.string(), whole),
      kept: whole,
    }),
    decision: z.object({ adopted: z.boolean(), reason: z.string(), startedBy: z.string(), adoptedBy: z.string() }),
  }),
  observed: z.object({
    recordedAt: z.string(),
    codeVersion: z.string(),
    startedAt: z.string(),
    seconds: z.number().min(0),
    cost: z.object({ gpuSeconds: z.number().min(0), cpuActivitySeconds: z.number().min(0), episodes: whole, tokens: whole }),
    activities: z.record(z.string(), activityTotals),
    workers: z.array(z.string()),
    /** Of the trainer: what decides the bits of its results beside its inputs. */
    numerics: z
      .object({
        device: z.string(),
        deviceName: z.string().optional(),
        driver: z.string().optional(),
        tensorFloat32: z.boolean().optional(),
        tensorflow: z.string().optional(),
        engine: z.string().optional(),
        fallbacks: z.array(z.string()).readonly().optional(),
        threads: whole,
        samplerSlots: whole,
        node: z.string(),
      })
      .optional(),
    histories: z.array(history),
    /** Set where the stage was not run here. */
    reusedFrom: reference.optional(),
  }),
});

/** A person went back to a stage: it and those after it are void and run again. */
const restarted = z.object({
  kind: z.literal('restarted'),
  content: z.object({ from: z.string(), kept: z.array(z.string()) }),
  observed: z.object({ recordedAt: z.string(), by: z.string() }),
});

const closed = z.object({
  kind: z.literal('closed'),
  content: z.object({ finalPolicy: sha256, stages: z.array(z.string()) }),
  observed: z.object({ recordedAt: z.string(), result: artifact, histories: z.array(history) }),
});

export const recordBodySchema = z.discriminatedUnion('kind', [opened, stage, restarted, closed]);
export type RecordBody = z.infer<typeof recordBodySchema>;
export type StageRecordBody = z.infer<typeof stage>;
export type StoredHistory = z.infer<typeof history>;
export type ActivityTotals = z.infer<typeof activityTotals>;
