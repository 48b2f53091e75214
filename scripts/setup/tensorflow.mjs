/**
 * TensorFlow for Node: libtensorflow out of the Python wheel, and the addon of @tensorflow/tfjs-node-gpu compiled against it, together with
 * our own part that registers functions (policy/engine/native/).
 *
 *   .cache/tensorflow-<version>-<variant>/
 *     tensorflow/   libtensorflow_cc.so.2, libtensorflow_framework.so.2, include/ (C headers)
 *     nvidia/       the CUDA libraries (GPU variant): the wheel's libraries look for them in ../nvidia, as in a Python environment
 *     addon/        compiled addons, named by the hash of what they were made from
 *     complete.json written last: without it the folder is made anew
 *
 * The addon in node_modules finds the libraries by a path relative to itself ($ORIGIN), so no environment variable is needed, the clone can
 * be moved, and a fresh `npm ci` costs a copy of the addon instead of a download or a compilation.
 */
import { createHash } from 'node:crypto';
import { copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { cacheDirectory, execute, repoRoot, SetupError } from './command.mjs';
import { checkCompiler, checkPlatform } from './machine.mjs';
import { tensorflowVersion } from './versions.mjs';
import { unpackWheel } from './wheels.mjs';

const packageFolder = join(repoRoot, 'node_modules', '@tensorflow', 'tfjs-node-gpu');
export const addonFile = join(packageFolder, 'lib', 'napi-v8', 'tfjs_binding.node');
const nodeHeaders = join(repoRoot, 'node_modules', 'node-api-headers', 'include');

/** @param {'cpu' | 'gpu'} variant */
export const libraryFolder = (variant) => join(cacheDirectory, `tensorflow-${tensorflowVersion}-${variant}`);

const shared = ['libtensorflow_cc.so.2', 'libtensorflow_framework.so.2'];

export function libraryReady(variant) {
  return existsSync(join(libraryFolder(variant), 'complete.json'));
}

/** Downloads and unpacks libtensorflow. @param {'cpu' | 'gpu'} variant @param {(text: string) => void} say */
export async function installLibrary(variant, say) {
  const platform = checkPlatform();
  const folder = libraryFolder(variant);
  const fresh = `${folder}.new`;
  rmSync(fresh, { recursive: true, force: true });
  const requirement = `${platform.tensorflow[variant]}==${tensorflowVersion}`;
  say(`downloading ${platform.megabytes[variant]} MB from PyPI (${requirement})`);
  await unpackWheel(requirement, fresh, [
    'tensorflow/libtensorflow_(cc|framework)\\.so\\.2$',
    'tensorflow/include/tensorflow/c/.*\\.h$',
    'tensorflow/include/(tensorflow/core|tsl|xla/tsl)/platform/ctstring.*\\.h$',
    'tensorflow/include/xla/tsl/c/.*\\.h$',
    '[^/]*\\.dist-info/METADATA$',
  ]);
  for (const file of shared) {
    if (!existsSync(join(fresh, 'tensorflow', file)))
      throw new SetupError(`${requirement} holds no tensorflow/${file}`, 'report this: the wheel has changed');
  }
  const cuda = variant === 'gpu' ? await installCuda(fresh, say) : [];
  writeFileSync(join(fresh, 'complete.json'), `${JSON.stringify({ schema: 1, requirement, cuda }, null, 2)}\n`);
  rmSync(folder, { recursive: true, force: true });
  renameSync(fresh, folder);
}

/**
 * @param {string} metadata METADATA file of the tensorflow wheel
 * @returns {string[]} the requirements of its extra "and-cuda", e.g. "nvidia-cublas-cu12<13.0,>=12.5.3.2"
 */
export function cudaRequirements(metadata) {
  return [...metadata.matchAll(/^Requires-Dist: ([^;\n]+);\s*extra == ["']and-cuda["']/gm)].map((match) => match[1].replace(/\s/g, ''));
}

/** The CUDA libraries that this TensorFlow asks for, about 2.5 GB to download. @returns {Promise<string[]>} the exact versions */
async function installCuda(folder, say) {
  const info = readdirSync(folder).find((name) => name.endsWith('.dist-info'));
  const requirements = info ? cudaRequirements(readFileSync(join(folder, info, 'METADATA'), 'utf8')) : [];
  if (requirements.length === 0)
    throw new SetupError('the tensorflow wheel names no CUDA packages (extra "and-cuda")', 'report this: the wheel has changed');
  for (const [index, requirement] of requirements.entries()) {
    say(`downloading CUDA library ${index + 1}/${requirements.length} from PyPI (${requirement})`);
    // nvcc's wheel carries ptxas and libdevice, which XLA runs and reads at run time.
    await unpackWheel(requirement, folder, ['nvidia/.*/lib/.*\\.so', 'nvidia/cuda_nvcc/(bin|nvvm)/', '[^/]*\\.dist-info/METADATA$']);
  }
  return readdirSync(folder)
    .filter((name) => name.startsWith('nvidia_') && name.endsWith('.dist-info'))
    .map((name) => name.replace(/\.dist-info$/, ''));
}

/** Ours includes tfjs-node's tfjs_binding.cc. */
const ownSource = join(repoRoot, 'policy', 'engine', 'native', 'function-addon.cc');
const compileFlags = [
  '-O2',
  '-std=c++17',
  '-fPIC',
  '-shared',
  '-DNAPI_VERSION=8',
  '-DNODE_GYP_MODULE_NAME=tfjs_binding',
  '-DBUILDING_NODE_EXTENSION',
];

/** Where the compiled addon for this library, these sources and these flags is kept. */
function cachedAddon(variant) {
  const hash = createHash('sha256').update(JSON.stringify([tensorflowVersion, variant, compileFlags]));
  const binding = join(packageFolder, 'binding');
  for (const name of readdirSync(binding).sort()) hash.update(name).update(readFileSync(join(binding, name)));
  hash.update(readFileSync(ownSource));
  return join(libraryFolder(variant), 'addon', `tfjs_binding-${hash.digest('hex').slice(0, 16)}.node`);
}

/** True when node_modules holds the very addon that was built and tested for this variant. */
export function addonReady(variant) {
  if (!existsSync(addonFile) || !existsSync(join(packageFolder, 'binding'))) return false;
  const cached = cachedAddon(variant);
  return existsSync(cached) && existsSync(`${cached}.json`) && readFileSync(cached).equals(readFileSync(addonFile));
}

/** True when the addon has to be compiled, which needs a C++ compiler; a kept one is only copied. */
export function addonNeedsCompiler(variant) {
  return !existsSync(join(packageFolder, 'binding'))
    ? !existsSync(join(libraryFolder(variant), 'addon'))
    : !existsSync(cachedAddon(variant));
}

/** Compiles the addon unless it is kept from before, puts it into node_modules and tries it. */
export async function installAddon(variant, say) {
  const cached = cachedAddon(variant);
  const library = join(libraryFolder(variant), 'tensorflow');
  if (!existsSync(cached)) {
    const compiler = checkCompiler();
    say(`compiling with ${compiler.name}`);
    mkdirSync(dirname(cached), { recursive: true });
    const unfinished = `${cached}.${process.pid}`;
    const includes = [nodeHeaders, packageFolder, join(library, 'include')].map((folder) => `-I${folder}`);
    const runPath = `-Wl,-rpath,$ORIGIN/${relative(dirname(addonFile), library)}`;
    const inputs = [ownSource, join(packageFolder, 'binding', 'tfjs_backend.cc'), ...shared.map((name) => join(library, name))];
    await execute(compiler.name, [...compileFlags, ...includes, ...inputs, runPath, '-o', unfinished], {
      fix: `see the compiler's messages in .cache/setup.log; a compiler with C++17 is needed (found: ${compiler.version})`,
    });
    renameSync(unfinished, cached);
  }
  mkdirSync(dirname(addonFile), { recursive: true });
  // A new file each time: a running process may have the old one mapped.
  copyFileSync(cached, `${addonFile}.new`);
  renameSync(`${addonFile}.new`, addonFile);
  say('trying a matrix product');
  const tried = await tryAddon(variant);
  writeFileSync(`${cached}.json`, `${JSON.stringify(tried)}\n`);
}

/** Multiplies two matrices in a child process and checks the numbers; in the GPU variant the product must have run on the GPU backend. */
async function tryAddon(variant) {
  const output = await execute(process.execPath, ['-e', smokeProgram], {
    env: { ...process.env, TF_CPP_MIN_LOG_LEVEL: '2' },
    fix: 'remove .cache/tensorflow-* and run again: npm run setup',
  });
  const tried = JSON.parse(output.trim().split('\n').at(-1) ?? 'null');
  if (JSON.stringify(tried?.product) !== '[19,22,43,50]') {
    throw new SetupError(
      `the TensorFlow addon multiplied wrongly: got ${JSON.stringify(tried?.product)}, expected [19,22,43,50]`,
      'remove .cache/tensorflow-* and run: npm run setup',
    );
  }
  if (!tried.functions) {
    throw new SetupError('the TensorFlow addon cannot register functions', 'remove .cache/tensorflow-*/addon and run: npm run setup');
  }
  if (variant === 'gpu' && !tried.gpu) {
    throw new SetupError(
      'the GPU library of TensorFlow was installed, but it sees no GPU (its own words are at the end of .cache/setup.log)',
      'check nvidia-smi (driver 525 or newer for CUDA 12), or train on the CPU: export TERMINAL_RSI_TENSORFLOW=cpu, then npm run setup',
    );
  }
  return { schema: 1, backend: tried.backend, gpu: tried.gpu };
}

const smokeProgram = `
const tf = require('@tensorflow/tfjs-node-gpu');
const product = Array.from(tf.matMul(tf.tensor2d([1, 2, 3, 4], [2, 2]), tf.tensor2d([5, 6, 7, 8], [2, 2])).dataSync());
console.log(JSON.stringify({ product, backend: tf.getBackend(), gpu: tf.backend().isUsingGpuDevice === true, functions: typeof tf.backend().binding.addFunction === 'function' }));
`;
