/**
 * Set-up: brings everything that a run needs on a machine with Node, Python 3 with pip and a C++ compiler.
 * Node's built-ins only, because it runs before any npm package exists. Each step is skipped when its result is there, so it is safe
 * and cheap to run before every command; all of its results lie in node_modules/, .cache/ and suites/built/.
 *
 *   npm run setup                 (npm start, npm test and the other commands call it themselves)
 *   TERMINAL_RSI_TENSORFLOW=cpu   forces the CPU library on a machine with a GPU (or gpu: the other way round)
 */
import { pathToFileURL } from 'node:url';
import { SetupError } from './setup/command.mjs';
import { withSetupLock } from './setup/lock.mjs';
import { checkCompiler, checkNode, checkPlatform, checkPython, chooseVariant } from './setup/machine.mjs';
import { installNpmPackages, npmPackagesReady } from './setup/npm-packages.mjs';
import { startProgress } from './setup/progress.mjs';
import { buildSuites, suitesReady } from './setup/suites.mjs';
import { installTemporal, temporalNeedsDownload, temporalReady } from './setup/temporal.mjs';
import { addonNeedsCompiler, addonReady, installAddon, installLibrary, libraryReady } from './setup/tensorflow.mjs';
import { tensorflowVersion } from './setup/versions.mjs';

/** The steps in order: what each is called, whether its result is there, how to make it. A later step may need an earlier one's result. */
function planSteps(variant) {
  return [
    { title: 'npm packages', ready: npmPackagesReady, make: installNpmPackages },
    {
      title: `libtensorflow ${tensorflowVersion} (${variant})`,
      ready: () => libraryReady(variant),
      make: (say) => installLibrary(variant, say),
    },
    { title: 'TensorFlow addon for Node', ready: () => addonReady(variant), make: (say) => installAddon(variant, say) },
    { title: 'Temporal CLI', ready: temporalReady, make: installTemporal },
    { title: 'built-in task suites', ready: suitesReady, make: buildSuites },
  ];
}

/**
 * Makes what is missing. Quick (well under a second) when nothing is.
 * @returns {Promise<{ variant: 'cpu' | 'gpu', made: string[] }>} the TensorFlow variant in place, and the titles of the steps that worked
 * @throws {SetupError} naming what is missing or wrong and how to mend it
 */
export async function setUp() {
  checkNode();
  checkPlatform();
  const variant = chooseVariant();
  const steps = planSteps(variant);
  if (steps.every((step) => step.ready())) return { variant, made: [] };

  const onWait = () => process.stderr.write('Another set-up of this folder is running: waiting for it to end …\n');
  return withSetupLock(() => makeAll(steps, variant), { onWait });
}

async function makeAll(steps, variant) {
  const made = [];
  const progress = startProgress(steps.length + 1);
  await progress.step('what this machine must bring', async (say) => {
    // Named before anything is downloaded, and only where a step will use it.
    if (!libraryReady(variant) || (!temporalReady() && temporalNeedsDownload())) checkPython();
    if (addonNeedsCompiler(variant)) checkCompiler();
    say(`Node ${process.versions.node}`);
  });
  for (const step of steps) {
    if (step.ready()) {
      progress.skip(step.title, 'already there');
    } else {
      await progress.step(step.title, step.make);
      made.push(step.title);
    }
  }
  return { variant, made };
}

/** Runs `main` and turns a SetupError into two plain lines and exit code 1; any other error keeps its stack. */
export async function orExplain(main) {
  try {
    return await main();
  } catch (error) {
    if (!(error instanceof SetupError)) throw error;
    process.stderr.write(`\nSet-up stopped: ${error.message}\n${error.fix ? `  To mend it: ${error.fix}\n` : ''}`);
    process.exit(1);
  }
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  const started = Date.now();
  const { variant, made } = await orExplain(setUp);
  const seconds = ((Date.now() - started) / 1000).toFixed(1);
  process.stdout.write(
    `Set-up complete (TensorFlow on ${variant.toUpperCase()}${made.length === 0 ? ', nothing to do' : ''}, ${seconds} s).\n`,
  );
}
