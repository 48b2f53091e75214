/**
 * `npm run import-gguf -- FILE.gguf --output DIR`: a model of llama.cpp's format as a policy directory that runs can start from. Once per model;
 * what is supported stands in docs/checkpoints.md.
 */
import { existsSync, renameSync, rmSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { UserError } from '../environment/errors.ts';
import { loadModel } from '../policy/checkpoint.ts';
import { disposeModel, parameterCount } from '../policy/model-parameters.ts';
import { loadTokenizer } from '../policy/tokenizer.ts';
import { errorText } from './error-text.ts';
import { pythonEnvironment } from './python-environment.ts';

const HELP = `npm run import-gguf -- FILE.gguf --output DIR

FILE.gguf       a Llama, Qwen2 or Qwen3 model with a byte-level BPE tokenizer; quantised weights become float32
  --output DIR  directory to make, in the layout of Hugging Face
`;
const CONVERTER = join(import.meta.dirname, 'gguf/convert.py');
const PACKAGES = ['gguf==0.19.0', 'safetensors==0.8.0'];

/** Converts and checks by loading. Throws UserError for a file that cannot be converted, and when `output` exists. */
export async function importGguf(file: string, output: string): Promise<{ readonly parameters: number }> {
  if (!existsSync(file)) throw new UserError(`${file}: does not exist, expected a GGUF file`);
  if (existsSync(output)) throw new UserError(`${output}: exists, expected a new directory`);
  const environment = await pythonEnvironment({ name: 'gguf', packages: PACKAGES, minor: 10 });
  if ('skip' in environment) throw new UserError(environment.skip);
  const temporary = `${output}.partial-${process.pid}`;
  try {
    await environment.runFile(CONVERTER, file, temporary).catch((error: Error & { stderr?: string }) => {
      throw new UserError(`${file}: ${error.stderr?.trim().split('\n').at(-1) ?? error.message}`);
    });
    loadTokenizer(temporary);
    const model = loadModel(temporary, 'actor');
    const parameters = parameterCount(model);
    disposeModel(model);
    renameSync(temporary, output);
    return { parameters };
  } finally {
    rmSync(temporary, { recursive: true, force: true });
  }
}

async function main(): Promise<void> {
  const { values, positionals } = parseArgs({ allowPositionals: true, options: { output: { type: 'string' }, help: { type: 'boolean' } } });
  if (values.help) return void process.stdout.write(HELP);
  const [file, ...more] = positionals;
  if (file === undefined || more.length > 0 || values.output === undefined)
    throw new UserError(`got ${positionals.length} files and output ${values.output}, expected one of each\n${HELP}`);
  const { parameters } = await importGguf(resolve(file), resolve(values.output));
  process.stdout.write(`${resolve(values.output)}: ${parameters} parameters; loads as a policy\n`);
}

if (import.meta.main ?? process.argv[1] === import.meta.filename) {
  main().catch((error: unknown) => {
    process.stderr.write(`${errorText(error)}\n`);
    process.exitCode = 1;
  });
}
