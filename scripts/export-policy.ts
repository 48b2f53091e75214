/**
 * `npm run export-policy -- DIR --output OUT --type bfloat16`: a policy in another number type, for other programs. Policies are stored in float32
 * because training goes on from them; half the bytes do for inference.
 */
import { resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { UserError } from '../environment/errors.ts';
import { EXPORT_TYPES, type ExportType, loadModel, readTokenizer, saveModel } from '../policy/checkpoint.ts';
import { disposeModel } from '../policy/model-parameters.ts';
import { errorText } from './error-text.ts';

const HELP = `npm run export-policy -- DIR --output OUT [--type TYPE]

DIR             policy directory
  --output OUT  directory to make, in the layout of Hugging Face
  --type TYPE   ${Object.keys(EXPORT_TYPES).join(', ')} (default: bfloat16)
`;

function main(): void {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: { output: { type: 'string' }, type: { type: 'string', default: 'bfloat16' }, help: { type: 'boolean' } },
  });
  if (values.help) return void process.stdout.write(HELP);
  const [directory, ...more] = positionals;
  const { output, type } = values;
  if (directory === undefined || more.length > 0 || output === undefined)
    throw new UserError(`got ${positionals.length} directories and output ${output}, expected one of each\n${HELP}`);
  if (!Object.hasOwn(EXPORT_TYPES, type)) throw new UserError(`--type is ${type}, expected one of ${Object.keys(EXPORT_TYPES).join(', ')}`);
  const tokenizer = readTokenizer(resolve(directory));
  const model = loadModel(resolve(directory), 'actor');
  saveModel(model, resolve(output), { tokenizer, type: type as ExportType });
  disposeModel(model);
  process.stdout.write(`${resolve(output)}: written in ${type}\n`);
}

try {
  main();
} catch (error) {
  process.stderr.write(`${errorText(error)}\n`);
  process.exitCode = 1;
}
