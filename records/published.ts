/**
 * Numbers that the paper published (Terminal-RSI, arXiv 2610.22192), for the report's comparison. Its suites, model and
 * training differ from ours in everything but the role: they are a frame, not a target.
 */
export const PUBLISHED_SOURCE = 'Terminal-RSI, arXiv 2610.22192';
export const PUBLISHED_STAGES = ['Base', 'RSR-1', 'RPR-1', 'RSR-2', 'RPR-2'] as const;

/** Mean of the four Terminal-Bench suites, percent. */
export const PUBLISHED_FOUR_SUITE_MEAN = [20.68, 34.25, 44.5, 48.75, 50.58] as const;

/** Suite or tier → percent per stage; undefined where the paper's summary gives none. */
export const PUBLISHED_ROWS: readonly { readonly name: string; readonly values: readonly (number | string | undefined)[] }[] = [
  { name: 'mean of the four Terminal-Bench suites', values: PUBLISHED_FOUR_SUITE_MEAN },
  { name: 'Terminal-Bench 2.1', values: [undefined, undefined, undefined, 86.52, 86.52] },
  { name: 'Terminal-Bench 3.0', values: [undefined, undefined, undefined, '15.00', 16.95] },
  { name: 'Terminal-Bench 4.0', values: [0, undefined, undefined, undefined, 19.84] },
  { name: 'Terminal-Bench Hard', values: ['31.00', undefined, undefined, undefined, '79.00'] },
  { name: 'LHTB strict, of 46 / process reward', values: ['0 / 0.21', undefined, undefined, undefined, '5 / 0.37'] },
  { name: 'SWR100', values: [3, undefined, 6, 6, 6] },
  { name: 'tier easy', values: [31.78, undefined, undefined, undefined, 72.88] },
  { name: 'tier medium', values: [23.58, undefined, undefined, undefined, 58.96] },
  { name: 'tier hard', values: [14.91, undefined, undefined, undefined, 49.12] },
  { name: 'tier extreme', values: [undefined, undefined, 10.98, '6.10', 10.98] },
];

/** The reward audit over 4,352 trajectories of 46 families. */
export const PUBLISHED_AUDIT = {
  fdr: {
    trajectories: 4352,
    families: 46,
    failedRewardShare: 0.5009,
    failedAtLeastOne: 158,
    familyMeanDeviation: 0.34,
    trajectoryDeviation: 0.5,
  },
  spr: {
    trajectories: 4352,
    families: 46,
    failedRewardShare: 0.2872,
    failedAtLeastOne: 0,
    familyMeanDeviation: 0.47,
    trajectoryDeviation: 0.59,
  },
} as const;
