/**
 * What the artifact store hands out: a reference to immutable bytes, never the bytes themselves. References travel
 * through Temporal histories; the bytes stay on disk.
 */
export interface ArtifactRef {
  /** What the bytes are, for people and for the report. */
  readonly kind: ArtifactKind;
  /** `artifact:<sha256>`; resolved by the artifact store of the machine that reads it. */
  readonly uri: string;
  /** Hex SHA-256 of the bytes (of the manifest's bytes for a directory artifact). */
  readonly sha256: string;
  /** Total size in bytes (of all files for a directory artifact). */
  readonly bytes: number;
}

export type ArtifactKind =
  | 'policy' // directory in Hugging Face layout: config.json, tokenizer.json, model.safetensors
  | 'critic' // directory: config.json, model.safetensors (trunk plus value head)
  | 'optimizer' // directory: Adam moments and step count of one model
  | 'episodes' // JSON lines of EpisodeRecord
  | 'tokens' // JSON lines of EpisodeTokens
  | 'snapshots' // JSON lines of WorkspaceSnapshot
  | 'verdicts' // JSON lines of EpisodeVerdict
  | 'chunks' // JSON lines of ChunkResult: the artifacts of a batch, chunk by chunk
  | 'runbooks' // JSON lines of Runbook with its screening decision
  | 'batch' // JSON lines of RewardedEpisode, what critic warm-up and PPO train on
  | 'examples' // JSON lines of EpisodeTokens kept for fine-tuning
  | 'calibration' // JSON: valid checks per task and family statistics
  | 'metrics' // JSON: training metrics of one activity
  | 'evaluation' // JSON: EvaluationTable
  | 'result' // JSON: RunResult, or of episodes outside a run JobResult
  | 'trials' // JSON lines of PlannedTrial: the episodes of a job
  | 'stage' // JSON: StageResult without what differs between equal runs
  | 'history'; // JSON: a workflow's history as Temporal exports it
