/** The small vocabulary that all families share, so that a tiny policy with few tokens can learn them. */

/** No noun is part of another one: `grep` and `sed` on one never hit another (tested). */
export const NOUNS = (
  'alpha amber apple arrow bear birch bread bridge candle cedar cloud coral crane delta dune eagle ' +
  'ember fern flint forest garden goat grape harbor hill island ivory jade kite lake lemon lion ' +
  'maple meadow moon oak ocean olive pearl pine river rose ruby sage stone tiger willow wolf'
).split(' ');

/** Folders of the workspace; '' is /app itself. */
export const FOLDERS = ['docs', 'data', 'notes', ''] as const;

/** Keys of configuration files. */
export const KEYS = ['port', 'size', 'mode', 'user', 'level'] as const;

/** First words of log lines. */
export const LEVELS = ['error', 'info', 'warn'] as const;
