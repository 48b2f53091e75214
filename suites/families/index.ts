/** The list of all families. The order is part of the suites' identity: new ones go at the end of their tier. */
import type { Tier } from '../../environment/types.ts';
import type { Family } from '../family.ts';
import {
  archiveLog,
  backupAndSet,
  copyEditCount,
  csvReport,
  editFromNote,
  logTriage,
  mergeAndClean,
  release,
  sortNamed,
  sortThenHead,
} from './chains.ts';
import { FILE_JOBS, combination } from './combinations.ts';
import {
  appendLine,
  copyFile,
  createFile,
  deleteByExtension,
  makeTree,
  mergeFiles,
  moveByExtension,
  moveFile,
  runScript,
} from './file-jobs.ts';
import { appendNamed, copyNamed, createNamed, findAndCopy, followPlan, pointerChain, setFromNote } from './reading-jobs.ts';
import { Scene } from './scene.ts';
import type { JobMaker } from './scene.ts';
import * as textJobs from './text-jobs.ts';
import { workflowRebuild } from './workflow.ts';

function family(name: string, tier: Tier, summary: string, job: JobMaker, heldOut?: true): Family {
  return {
    name,
    tier,
    summary,
    ...(heldOut === undefined ? {} : { heldOut }),
    generate: (random) => {
      const scene = new Scene(random);
      return scene.finish(name, [job(scene)]);
    },
  };
}

export const LONG_HORIZON = ['errands', 'chores'] as const;
export const WORKFLOW = 'workflow-rebuild';

export const FAMILIES: readonly Family[] = [
  family('create-file', 'easy', 'a new file with two words', createFile),
  family('copy-file', 'easy', 'copy a file', copyFile),
  family('move-file', 'easy', 'rename a file', moveFile),
  family('append-line', 'easy', 'append without overwriting', appendLine),
  family('delete-by-extension', 'easy', 'delete with a glob', deleteByExtension),
  family('merge-files', 'easy', 'concatenate in order', mergeFiles),
  family('sort-file', 'easy', 'sort into a new file', textJobs.sortFile),
  family('sort-unique', 'easy', 'sort and drop duplicates', textJobs.sortUnique),
  family('sort-numbers', 'easy', 'sort by number, descending', textJobs.largestNumber),
  family('count-lines', 'easy', 'count lines into a file', textJobs.countLines),
  family('filter-lines', 'easy', 'lines with a word', textJobs.filterLines),
  family('drop-lines', 'easy', 'lines without a word', textJobs.dropLines),
  family('count-matches', 'easy', 'number of lines with a word', textJobs.countMatches),
  family('first-lines', 'easy', 'head', textJobs.firstLines),
  family('last-lines', 'easy', 'tail', textJobs.lastLines),
  family('cut-column', 'easy', 'a column of a CSV file', textJobs.cutColumn),
  family('sum-column', 'easy', 'sum of a column', textJobs.sumColumn),
  family('upper-case', 'easy', 'translate to upper case', textJobs.upperCase),
  family('replace-word', 'easy', 'replace in place', textJobs.replaceWord),
  family('delete-line', 'easy', 'delete a line in place', textJobs.deleteLine),
  family('set-key', 'easy', 'set a key of a configuration file', textJobs.setKey),

  family('make-tree', 'medium', 'nested folders and a file in them', makeTree),
  family('move-by-extension', 'medium', 'sort files into a new folder', moveByExtension),
  family('run-script', 'medium', 'make a script executable and keep its output', runScript),
  family('backup-and-set', 'medium', 'keep a copy, then edit', backupAndSet),
  family('log-triage', 'medium', 'filter a log and count', logTriage),
  family('copy-named', 'medium', 'copy the file that another file names', copyNamed),
  family('append-named', 'medium', 'append to the file that another file names', appendNamed),
  family('create-named', 'medium', 'create the file that another file names', createNamed),
  family('set-from-note', 'medium', 'set a key to a value that stands in a file', setFromNote),
  family('find-and-copy', 'medium', 'find the file with a word', findAndCopy),
  combination('two-jobs', 'medium', 'two independent jobs', 2, 2, 2),

  family('csv-report', 'hard', 'filter rows, take a column, count', csvReport),
  family('edit-from-note', 'hard', 'replace with a word from a file, then sort', editFromNote),
  family('pointer-chain', 'hard', 'follow two files to a word', pointerChain(2)),
  family('follow-plan', 'hard', 'read a plan and carry it out', followPlan),
  combination('three-jobs', 'hard', 'three independent jobs', 3, 3, 2),
  workflowRebuild,

  family('long-pointer-chain', 'extreme', 'follow four files to a word', pointerChain(4)),
  family('release', 'extreme', 'five steps of a release', release),
  family('archive-log', 'extreme', 'collect, count, note and archive', archiveLog),
  combination('errands', 'extreme', 'five to seven jobs of all kinds', 5, 7, 1),
  combination('chores', 'extreme', 'five to eight jobs on files', 5, 8, 1, FILE_JOBS),

  family('sort-then-head', 'medium', 'sort, then the first lines', sortThenHead, true),
  family('sort-named', 'medium', 'sort the file that another file names', sortNamed, true),
  family('copy-edit-count', 'hard', 'copy, edit the copy, count', copyEditCount, true),
  family('merge-and-clean', 'hard', 'merge, drop duplicates, delete', mergeAndClean, true),
];

export const TRAINED: readonly Family[] = FAMILIES.filter((candidate) => candidate.heldOut === undefined);
export const HELD_OUT: readonly Family[] = FAMILIES.filter((candidate) => candidate.heldOut !== undefined);
