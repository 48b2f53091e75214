/** The activities of queue `terminal-rsi-gpu`, as the worker registers them. */
import type { GpuActivities } from '../workflows/contract.ts';
import type { GpuDependencies } from './dependencies.ts';
import { activity } from './failures.ts';
import { fineTuneActor } from './fine-tune-actor.ts';
import { jointPpo } from './joint-ppo.ts';
import { warmUpCritic } from './warm-up-critic.ts';

export function createGpuActivities(deps: GpuDependencies): GpuActivities {
  return {
    fineTuneActor: activity((input) => fineTuneActor(deps, input)),
    warmUpCritic: activity((input) => warmUpCritic(deps, input)),
    jointPpo: activity((input) => jointPpo(deps, input)),
  };
}
