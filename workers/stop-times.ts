/**
 * How long each process may take to leave after its first SIGTERM or SIGINT, in milliseconds. A second signal ends it at once; what
 * it was writing then is a temporary file that nobody reads.
 *
 *   rollout worker   10 s   episodes are cancelled and their sandboxes closed; finished episodes are in the journal already
 *   GPU worker       13 s   the optimizer step in progress ends, its checkpoint is written, then the trainer is ended
 *   launcher         20 s   both workers, then the Temporal server
 *
 * Who supervises a process from outside must wait longer than that before SIGKILL (Docker's default is 10 s).
 */

/** Cancelled rollout, verify and rewrite attempts; the second on top is for closing connections. */
export const ROLLOUT_DRAIN_MS = 9_000;
/** One optimizer step and one checkpoint. A step that takes longer is lost, and only that one. */
export const TRAINING_DRAIN_MS = 9_000;
/** After the drain the trainer is idle, or inside an operation whose result nobody waits for any more. */
export const TRAINER_END_MS = 3_000;
/** What the launcher gives each worker before SIGKILL. */
export const WORKER_STOP_MS = 15_000;
/** What the launcher gives the Temporal dev server, which writes its database all the time and needs no long goodbye. */
export const SERVER_STOP_MS = 5_000;
