/**
 * `npm run bundle -- --out FILE`: builds the workflow bundle for workers that are deployed (TERMINAL_RSI_WORKFLOW_BUNDLE).
 * Build it in the install that it will run in: the worker refuses a bundle of another SDK version or of other sources. Where the
 * environment switches tracing on, it is built in.
 */
import path from 'node:path';
import { parseArgs } from 'node:util';
import { stampText, writeWorkflowBundle } from '../workers/bundle.ts';
import { workflowInterceptorModules } from '../workers/tracing.ts';

const { values } = parseArgs({ options: { out: { type: 'string' } } });
if (!values.out) {
  process.stderr.write('Usage: npm run bundle -- --out FILE\n');
  process.exit(2);
}
const file = path.resolve(values.out);
const stamp = await writeWorkflowBundle(file, { interceptorModules: workflowInterceptorModules() });
process.stdout.write(`${file}: ${stampText(stamp)}\n`);
