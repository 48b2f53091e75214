/**
 * `npm run audit -- RUN`: proves afterwards what a run did. RUN is a workflow id, a run key, or the archive of `npm run export`.
 * Exit status 1 where something does not hold; the last line names the first broken link. docs/audit.md tells what is checked.
 */
import { mkdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { parseArgs } from 'node:util';
import pc from 'picocolors';
import { UserError } from '../environment/errors.ts';
import { auditSource, episodesOf } from '../records/audit/audit.ts';
import { isArchive, openArchive } from '../records/audit/archive.ts';
import { auditPage } from '../records/audit/html.ts';
import { auditText, episodeText } from '../records/audit/text.ts';
import { openRun } from './audit/open-run.ts';
import { errorText } from './error-text.ts';

const HELP = `npm run audit -- RUN [options]

RUN                  workflow id, run key (or its first 8 characters), or an archive of \`npm run export\` (file or folder)
  --stage S          only this stage, e.g. RPR-1
  --html FILE        also write a page with everything, every dropped episode included
  --result-file FILE also write the audit as JSON
  --episode ID       print one episode: turns, commands, outputs, checks
  --anchor HASH      the ledger must hold the record with this hash, which was noted elsewhere
  --no-replay        leave out the replay against today's workflow code
`;

async function main(): Promise<number> {
  const { values, positionals } = options();
  if (values.help) {
    process.stdout.write(HELP);
    return 0;
  }
  const [run, ...more] = positionals;
  if (run === undefined || more.length > 0) throw new UserError(`got ${positionals.length} runs, expected one\n${HELP}`);
  const tell = (message: string): void => void process.stderr.write(`${pc.dim(message)}\n`);
  const source = (await isArchive(run)) ? await openArchive(run) : await openRun(run, tell);
  try {
    const { audit, context } = await auditSource(source, {
      ...(values.stage === undefined ? {} : { stage: values.stage }),
      ...(values.anchor === undefined ? {} : { anchor: values.anchor }),
      replay: !values['no-replay'],
      progress: process.stderr.isTTY ? (what) => tell(`… ${what}`) : undefined,
    });
    if (values.stage !== undefined && audit.stages.length === 0)
      throw new UserError(
        `--stage is ${JSON.stringify(values.stage)}; the run has ${context.chain.map(({ content }) => content.stage).join(', ') || 'no finished stage'}`,
      );
    if (values.episode !== undefined) {
      const found = (await episodesOf(context, [values.episode])).get(values.episode);
      if (!found)
        throw new UserError(
          `--episode is ${JSON.stringify(values.episode)}; expected the id of an episode of the run, e.g. RSR-1/rollout/train/TASK/shell/0`,
        );
      process.stdout.write(episodeText(found));
    } else process.stdout.write(auditText(audit));
    if (values.html !== undefined) {
      const episodes = await episodesOf(
        context,
        audit.dropped.map(({ episodeId }) => episodeId),
      );
      await write(values.html, auditPage(audit, episodes));
      tell(`Page: ${path.resolve(values.html)}`);
    }
    if (values['result-file'] !== undefined) await write(values['result-file'], `${JSON.stringify(audit, null, 2)}\n`);
    return audit.sound ? 0 : 1;
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
        stage: { type: 'string' },
        html: { type: 'string' },
        'result-file': { type: 'string' },
        episode: { type: 'string' },
        anchor: { type: 'string' },
        'no-replay': { type: 'boolean', default: false },
        help: { type: 'boolean', short: 'h' },
      },
    });
  } catch (error) {
    throw new UserError(`${error instanceof Error ? error.message : String(error)}\n${HELP}`);
  }
}

async function write(file: string, text: string): Promise<void> {
  await mkdir(path.dirname(path.resolve(file)), { recursive: true });
  await writeFile(file, text);
}

try {
  process.exit(await main());
} catch (error) {
  process.stderr.write(`${pc.red('Error:')} ${errorText(error)}
`);
  process.exit(2);
}
