/**
 * `npm run resume -- RUN`: goes on with a run where it stopped; with `--from` runs a stage and all after it again; with `--fork` starts a
 * new run that shares the stages before. Brings server and workers up where they are not, and follows the run as `start-run` does.
 */
import { openStore } from '../records/artifacts.ts';
import { dataDirectory } from '../records/paths.ts';
import { printOutcome, printRunStart, runCommand } from './launcher/command.ts';
import { parseResumeOptions, RESUME_HELP } from './launcher/options.ts';
import { forkRun, goOn, lookUpRun, restartFrom } from './launcher/resume.ts';
import { followRun } from './launcher/run.ts';

await runCommand(async ({ table, messages, signal, up }) => {
  const options = parseResumeOptions(process.argv.slice(2));
  if (options === 'help') {
    process.stdout.write(`${RESUME_HELP}\n`);
    return 0;
  }
  const known = await lookUpRun(dataDirectory(), options.run);
  const stack = await up(known.config.sandbox);
  const { client, data } = stack;
  const { intent } = options;
  const tell = messages.info;
  const run =
    intent.kind === 'go-on'
      ? await goOn(client, data, known, tell)
      : intent.kind === 'restart'
        ? await restartFrom(client, data, known, intent, tell)
        : await forkRun(client, data, openStore(), known, intent, tell);
  printRunStart(messages, stack, run);
  const outcome = await followRun(client, run.handle, table, signal);
  table.finish();
  if (!outcome) {
    process.stdout.write(`The run ${run.handle.workflowId} is not finished; \`npm start\` goes on with it.\n`);
    return 130;
  }
  return await printOutcome(stack, outcome, options.resultFile);
});
