/**
 * `npm run export -- RUN`: one archive with all that an audit of the run needs, for another machine or another year; or its episodes as
 * trajectories, for Harbor's viewer.
 */
import path from 'node:path';
import { parseArgs } from 'node:util';
import pc from 'picocolors';
import { codeVersion } from '../activities/code-version.ts';
import { UserError } from '../environment/errors.ts';
import { writeArchive } from '../records/audit/export.ts';
import { sizeText } from '../records/audit/text.ts';
import { installedVersions } from '../records/report.ts';
import { writeTrajectories } from '../records/trajectories.ts';
import { openRun } from './audit/open-run.ts';
import { errorText } from './error-text.ts';

const MODES = ['all', 'records', 'hashes'] as const;
const HELP = `npm run export -- RUN [options]

RUN                  workflow id or run key (or its first 8 characters)
  --out FILE         archive to write (default: <workflow id>.tar.gz)
  --artifacts MODE   all: everything (default); records: without policies, critics, optimizers and token records;
                     hashes: no artifact, only the hashes in ledger and histories
  --trajectories DIR instead of an archive: the episodes of every finished stage as job folders in Harbor's layout, with
                     ATIF trajectories; look at them with: harbor view DIR
`;

async function main(signal: AbortSignal): Promise<number> {
  const { values, positionals } = options();
  if (values.help) {
    process.stdout.write(HELP);
    return 0;
  }
  const [run, ...more] = positionals;
  if (run === undefined || more.length > 0) throw new UserError(`got ${positionals.length} runs, expected one\n${HELP}`);
  const mode = MODES.find((name) => name === values.artifacts);
  if (!mode) throw new UserError(`--artifacts is ${JSON.stringify(values.artifacts)}; expected one of ${MODES.join(', ')}`);
  const source = await openRun(run, (message) => void process.stderr.write(`${pc.dim(message)}\n`));
  try {
    if (values.trajectories !== undefined) {
      const { jobs, trials } = await writeTrajectories(source, path.resolve(values.trajectories), signal);
      process.stdout.write(`${path.resolve(values.trajectories)}: ${jobs.length} jobs, ${trials} trials written\n`);
      return 0;
    }
    const versions = { ...(await installedVersions()), code: await codeVersion() };
    const file = path.resolve(values.out ?? `${run.replaceAll(/[^\w.-]/g, '-')}.tar.gz`);
    const { manifest, bytes } = await writeArchive(source, { file, artifacts: mode, versions, signal });
    const { members, histories, missing, open } = manifest;
    process.stdout.write(`${file}: ${members.length + 1} members, ${histories.length} histories, ${sizeText(bytes)}\n`);
    if (open) process.stdout.write('The run is still open: what comes later is not in the archive.\n');
    for (const { sha256, kind, why } of missing)
      process.stdout.write(pc.yellow(`! ${kind} artifact ${sha256}: ${why}; the audit will tell\n`));
    return 0;
  } finally {
    await source.close();
  }
}

function options() {
  try {
    return parseArgs({
      args: process.argv.slice(2),
      allowPositionals: true,
      options: {
        out: { type: 'string' },
        artifacts: { type: 'string', default: 'all' },
        trajectories: { type: 'string' },
        help: { type: 'boolean', short: 'h' },
      },
    });
  } catch (error) {
    throw new UserError(`${error instanceof Error ? error.message : String(error)}\n${HELP}`);
  }
}

const abort = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, () => abort.abort());
try {
  process.exit(await main(abort.signal));
} catch (error) {
  process.stderr.write(abort.signal.aborted ? 'Stopped; no archive was written.\n' : `${pc.red('Error:')} ${errorText(error)}\n`);
  process.exit(abort.signal.aborted ? 130 : 2);
}
