/** What the worker registers: workflow functions only. */
export { episodeBatch } from './episodes.ts';
export { evaluation } from './evaluation.ts';
export { rprStage } from './rpr-stage.ts';
export { rsrStage } from './rsr-stage.ts';
export { taskEpisodes } from './task-episodes.ts';
export { trainingRun } from './training-run.ts';
