/**
 * `npm run episodes -- --dataset DIR …`: episodes of any agent on a dataset's tasks, outside a training run. Brings up the server and
 * what the job needs, shows it live, and prints its table. Ctrl-C leaves it open: the same command, or `--resume`, goes on with it.
 */
import path from 'node:path';
import pc from 'picocolors';
import { dataDirectory } from '../records/paths.ts';
import { runCommand } from './launcher/command.ts';
import { EPISODES_HELP, parseEpisodes } from './launcher/episodes-options.ts';
import { checkedJob, followJob, jobsFolder, startJob, storedJob, writeJobResult } from './launcher/job.ts';
import { resultTable } from './job-view.ts';

await runCommand(async ({ table, messages, signal, up }) => {
  const options = parseEpisodes(process.argv.slice(2));
  if (options === 'help') {
    process.stdout.write(`${EPISODES_HELP}\n`);
    return 0;
  }
  const data = dataDirectory();
  const config = options.resume === undefined ? checkedJob(options.input) : await storedJob(data, options.resume || undefined);
  const time = new Date().toISOString().slice(0, 19).replace(/[-:]/g, '').replace('T', '-');
  const name = `${path.basename(config.dataset)}-${(config.agent.split(':')[0] ?? '').toLowerCase()}-${time}`;
  const jobDir = config.jobDir ?? path.join(jobsFolder(data), name);
  const stack = await up(config.sandbox, { gpu: config.agent.startsWith('policy:') });
  const { handle, continued } = await startJob(stack.client, { ...config, jobDir });
  const page =
    stack.uiUrl && `${stack.uiUrl}/namespaces/${stack.client.options.namespace}/workflows/${encodeURIComponent(handle.workflowId)}`;
  messages.info(`${continued ? 'Going on with' : 'Started'} job ${handle.workflowId}${page ? `: ${page}` : ''}`);
  messages.info(`Trials: ${jobDir}`);
  messages.info(`Logs:   ${stack.logs}`);
  const outcome = await followJob(stack.client, handle, table, signal, continued);
  table.finish();
  if (!outcome) {
    process.stdout.write(`The job is not finished. It goes on with \`npm run episodes -- --resume ${jobDir}\`.\n`);
    return 130;
  }
  if (!outcome.ok) {
    process.stderr.write(`${pc.red('The job failed:')} ${outcome.message}\nLogs: ${stack.logs}\n`);
    return 1;
  }
  process.stdout.write(`\n${resultTable(outcome.result)}\n\nTrials: ${outcome.result.job.directory}\n`);
  if (options.resultFile !== undefined) {
    await writeJobResult(outcome.result, options.resultFile);
    process.stdout.write(`Result: ${path.resolve(options.resultFile)}\n`);
  }
  return 0;
});
