/**
 * `npm run start-run`: starts a training run on the server that is up and follows it. Where no workers are up for this data
 * folder it brings server and workers up for the time of the run.
 */
import { UserError } from '../environment/errors.ts';
import { printOutcome, printRunStart, runCommand } from './launcher/command.ts';
import { OPTION_HELP, parseOptions, wantsDocker } from './launcher/options.ts';
import { followRun, startRun } from './launcher/run.ts';

await runCommand(async ({ table, messages, signal, up }) => {
  const options = parseOptions(process.argv.slice(2), true);
  if (options.help) {
    process.stdout.write(
      `npm run start-run [-- options]\n\n${OPTION_HELP}\n  --detach             start the run and return; needs \`npm run up\` or \`npm start\` elsewhere\n`,
    );
    return 0;
  }
  if (options.detach && options.resultFile !== undefined)
    throw new UserError('--result-file needs the end of the run, which --detach does not wait for');
  const stack = await up(wantsDocker(options) ? 'docker' : 'embedded');
  if (options.detach && stack.ownsWorkers)
    throw new UserError('--detach: no workers are up for this data folder, so nothing would run; start `npm run up` first');
  const run = await startRun(stack.client, stack.data, options.input);
  printRunStart(messages, stack, run);
  if (options.detach) return 0;
  const outcome = await followRun(stack.client, run.handle, table, signal);
  table.finish();
  if (!outcome) {
    process.stdout.write(`The run ${run.handle.workflowId} is not finished; it goes on when workers are up.\n`);
    return 130;
  }
  return printOutcome(stack, outcome, options.resultFile);
});
