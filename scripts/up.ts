/** `npm run up`: server and workers, and nothing else, for starting runs from the Temporal UI. Data stays on disk between starts. */
import { UserError } from '../environment/errors.ts';
import { TASK_QUEUE } from '../workflows/contract.ts';
import { printOpenRuns, printPlaces, runCommand, untilStopped } from './launcher/command.ts';
import { parseOptions, wantsDocker } from './launcher/options.ts';

await runCommand(async ({ messages, signal, up }) => {
  const options = parseOptions(process.argv.slice(2), false);
  if (options.help) {
    process.stdout.write(
      'npm run up [-- --sandbox docker]\n\n  --sandbox docker     also make sure that the Docker image of the built-in tasks exists\n',
    );
    return 0;
  }
  const { sandbox: _, ...others } = options.input;
  if (Object.keys(others).length > 0 || options.resultFile !== undefined) {
    throw new UserError(
      `${
        Object.keys(others)
          .map((key) => `--${key}`)
          .join(', ') || '--result-file'
      }: \`npm run up\` starts no run; give it to \`npm run start-run\``,
    );
  }
  const stack = await up(wantsDocker(options) ? 'docker' : undefined);
  printPlaces(messages, stack);
  await printOpenRuns(messages, stack);
  const form = stack.uiUrl
    ? `: ${stack.uiUrl}/namespaces/default/workflows/start-workflow?workflowType=trainingRun&taskQueue=${TASK_QUEUE}`
    : '';
  process.stdout.write(
    `Start a run with \`npm run start-run\`, or in the UI with type trainingRun, queue ${TASK_QUEUE}, input {}${form}\nCtrl-C to stop.\n`,
  );
  await untilStopped(signal);
  return 0;
});
