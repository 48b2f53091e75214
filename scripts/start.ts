/**
 * `npm start`: the whole job. Brings up the Temporal dev server and the workers, starts a training run (or goes on with the
 * one that is open in this data folder), shows it, and prints its table and report. On a terminal it then stays up.
 */
import { continueOrStart, followRun } from './launcher/run.ts';
import { printOpenRuns, printOutcome, printPlaces, printRunStart, runCommand, untilStopped } from './launcher/command.ts';
import { OPTION_HELP, parseOptions, wantsDocker } from './launcher/options.ts';

await runCommand(async ({ table, messages, signal, up }) => {
  const options = parseOptions(process.argv.slice(2), false);
  if (options.help) {
    process.stdout.write(
      `npm start [-- options]\n\n${OPTION_HELP}\n  --new                start another run although one is open in this data folder\n`,
    );
    return 0;
  }
  const stack = await up(wantsDocker(options) ? 'docker' : 'embedded');
  printPlaces(messages, stack);
  const run = await continueOrStart(stack.client, stack.data, options);
  printRunStart(messages, stack, run);
  await printOpenRuns(messages, stack, run.handle.workflowId);
  const outcome = await followRun(stack.client, run.handle, table, signal);
  table.finish();
  if (!outcome) {
    process.stdout.write('The run is not finished; `npm start` goes on with it.\n');
    return 130;
  }
  const status = await printOutcome(stack, outcome, options.resultFile);
  if (process.stdout.isTTY && stack.uiUrl !== undefined) {
    process.stdout.write(`\nThe UI stays up at ${stack.uiUrl}. Ctrl-C to stop.\n`);
    await untilStopped(signal);
  }
  return status;
});
