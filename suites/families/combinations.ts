/** Families that put several independent jobs into one instruction: from two (medium) to eight (long-horizon). */
import type { Family } from '../family.ts';
import { appendLine, copyFile, createFile, deleteByExtension, mergeFiles, moveFile } from './file-jobs.ts';
import { Scene } from './scene.ts';
import type { JobMaker } from './scene.ts';
import {
  countLines,
  countMatches,
  cutColumn,
  filterLines,
  firstLines,
  lastLines,
  replaceWord,
  setKey,
  sortFile,
  sortUnique,
  upperCase,
} from './text-jobs.ts';

/** Jobs of one command and a short sentence each. */
const SHORT_JOBS: readonly JobMaker[] = [
  appendLine,
  copyFile,
  createFile,
  deleteByExtension,
  mergeFiles,
  moveFile,
  countLines,
  countMatches,
  cutColumn,
  filterLines,
  firstLines,
  lastLines,
  replaceWord,
  setKey,
  sortFile,
  sortUnique,
  upperCase,
];

/** A family of `low` to `high` different jobs of the list. */
export function combination(
  name: string,
  tier: Family['tier'],
  summary: string,
  low: number,
  high: number,
  checksPerJob: number,
  jobs = SHORT_JOBS,
): Family {
  return {
    name,
    tier,
    summary,
    generate: (random) => {
      const scene = new Scene(random);
      const chosen = random.shuffle(jobs).slice(0, scene.number(low, high));
      return scene.finish(
        name,
        chosen.map((job) => job(scene)),
        checksPerJob,
      );
    },
  };
}

export const FILE_JOBS: readonly JobMaker[] = [
  appendLine,
  copyFile,
  createFile,
  deleteByExtension,
  mergeFiles,
  moveFile,
  replaceWord,
  setKey,
];
