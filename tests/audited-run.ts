/** One small real run, made once per test file, as an unpacked archive: real worker processes, trainer, sandboxes, every activity. */
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { openDataFolder } from '../records/audit/data-source.ts';
import { writeArchive } from '../records/audit/export.ts';
import { unpackArchive } from '../records/audit/archive.ts';
import { TASK_QUEUE } from '../workflows/contract.ts';
import type { TrainingRunInput, TrainingRunResult } from '../workflows/contract.ts';
import { approveStage, pause, resume } from '../workflows/messages.ts';
import type { trainingRun } from '../workflows/training-run.ts';
import { TemporalServer } from './temporal.ts';
import { WorkerProcesses } from './worker-processes.ts';
import { freePort } from './free-port.ts';

/** The smoke profile with the fewest tasks that still give every stage something to do. */
const INPUT: TrainingRunInput = {
  profile: 'smoke',
  trainingTasks: 4,
  requireApproval: true,
  evaluation: { tasksPerSuite: 1 },
  rsr: { samplesPerTask: 3 },
  rpr: { tasksPerIteration: 2, iterations: [2] },
};

export interface AuditedRun {
  /** Holds everything below; remove it at the end. */
  readonly directory: string;
  readonly data: string;
  readonly archive: string;
  readonly unpacked: string;
  readonly result: TrainingRunResult;
}

export async function makeAuditedRun(): Promise<AuditedRun> {
  const directory = await mkdtemp(path.join(tmpdir(), 'terminal-rsi-audited-'));
  const data = path.join(directory, 'data');
  await mkdir(data);
  const server = await TemporalServer.start();
  try {
    const workers = new WorkerProcesses({ address: server.address, data, trainerUrl: `http://127.0.0.1:${await freePort()}` });
    let result: TrainingRunResult;
    try {
      await Promise.all([workers.start('rollout-worker'), workers.start('gpu-worker')]);
      const basePolicy = process.env['TERMINAL_RSI_TEST_POLICY'] ?? 'models/tiny-base';
      const handle = await server.client.workflow.start<typeof trainingRun>('trainingRun', {
        ...{ taskQueue: TASK_QUEUE, workflowId: 'audited', args: [{ ...INPUT, basePolicy }] },
      });
      await handle.executeUpdate(approveStage, { args: [{ stage: 'RSR-1', by: 'Ada' }] });
      await handle.executeUpdate(pause);
      await handle.executeUpdate(resume);
      await handle.executeUpdate(approveStage, { args: [{ stage: 'RPR-1', by: 'Grace' }] });
      result = await handle.result();
    } finally {
      await workers.stop();
    }
    const source = await openDataFolder(data, 'audited', server.client);
    const archive = path.join(directory, 'audited.tar.gz');
    await writeArchive(source, { file: archive, artifacts: 'all', versions: { test: '1' } });
    const unpacked = path.join(directory, 'unpacked');
    await mkdir(unpacked);
    await unpackArchive(archive, unpacked);
    return { directory, data, archive, unpacked, result };
  } catch (error) {
    await rm(directory, { recursive: true, force: true });
    const why: string[] = [];
    for (let cause: unknown = error; cause instanceof Error; cause = cause.cause) why.push(cause.message);
    throw new Error(`the run to audit did not come about: ${why.join(': ')}`, { cause: error });
  } finally {
    await server.stop();
  }
}
