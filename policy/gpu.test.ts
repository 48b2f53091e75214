import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { adviceFor, gpuMemory, parseGpu, visibleGpu, whyNoGpu } from './gpu.ts';
import type { Sighting } from './gpu.ts';
import { cudaVersion, tensorflowLibrary } from './tensorflow-library.ts';

const h200 = { name: 'NVIDIA H200', memoryMiB: 143771, usedMiB: 4, driver: '570.86.15', computeCapability: '9.0' };
const cuda = ['nvidia_cuda_runtime_cu12-12.9.79', 'nvidia_cudnn_cu12-9.14.0.64'];
const usable: Sighting = { library: { variant: 'gpu', folder: '/x', cuda }, visible: '0', gpu: h200, driverLoaded: true };

test('why there is no GPU: each reason has its own words and says what to do', () => {
  const reasons: [Partial<Sighting>, RegExp][] = [
    [{ library: undefined }, /not compiled by our setup.*npm run setup/],
    [{ library: { variant: 'cpu', folder: '/x', cuda: [] } }, /without CUDA.*TERMINAL_RSI_TENSORFLOW=gpu npm run setup/],
    [{ visible: '-1' }, /CUDA_VISIBLE_DEVICES.*hides/],
    [{ driverLoaded: false, gpu: undefined }, /no NVIDIA driver is loaded/],
    [{ gpu: undefined }, /nvidia-smi shows no GPU 0.*--gpus all/],
    [{ gpu: { ...h200, driver: '470.82.01' } }, /driver 470\.82\.01 is too old for CUDA 12\.9\.79: install driver 525\.60\.13 or newer/],
    [{}, /NVIDIA H200 with driver 570\.86\.15, but CUDA 12\.9\.79 cannot use it/],
  ];
  for (const [change, expected] of reasons) assert.match(whyNoGpu({ ...usable, ...change }), expected);
});

test("nvidia-smi's answer is read field by field, and no answer is no GPU", () => {
  assert.deepEqual(parseGpu('NVIDIA H200, 143771, 4, 570.86.15, 9.0\nNVIDIA H200, 143771, 9, 570.86.15, 9.0\n'), h200);
  assert.equal(parseGpu(''), undefined);
  assert.equal(parseGpu('No devices were found\n'), undefined);
});

test('one GPU is visible: the first that may be used, and none where the CPU is asked for', () => {
  assert.equal(visibleGpu('gpu', '2,3'), '2');
  assert.equal(visibleGpu(undefined, 'GPU-8f3c, GPU-11aa'), 'GPU-8f3c');
  assert.equal(visibleGpu(undefined, ''), '-1');
  assert.equal(visibleGpu('cpu', '0'), '-1');
});

test("memory is the GPU's where one computes, as nvidia-smi tells it, and else nothing is said", (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'nvidia-smi-'));
  const saved = { ...process.env };
  t.after(() => {
    process.env = saved;
    rmSync(folder, { recursive: true, force: true });
  });
  const program = join(folder, 'nvidia-smi');
  writeFileSync(program, '#!/bin/sh\n[ "$3 $4" = "-i 3" ] && echo "NVIDIA H200, 143771, 4, 570.86.15, 9.0"\n');
  chmodSync(program, 0o755);
  process.env['PATH'] = `${folder}:${saved['PATH']}`;
  process.env['CUDA_VISIBLE_DEVICES'] = '3,4';
  delete process.env['TERMINAL_RSI_TENSORFLOW'];
  const library = { variant: 'gpu', folder, cuda } as const;
  assert.equal(gpuMemory(library), 143771 * 2 ** 20);
  assert.equal(gpuMemory({ ...library, variant: 'cpu' }), undefined);
  process.env['TERMINAL_RSI_TENSORFLOW'] = 'cpu';
  assert.equal(gpuMemory(library), undefined);
});

test('errors of TensorFlow on a GPU are explained', () => {
  assert.match(adviceFor('RESOURCE_EXHAUSTED: OOM when allocating tensor with shape[64,512]') ?? '', /memory of the GPU is short/);
  assert.match(adviceFor('libdevice not found at ./libdevice.10.bc') ?? '', /CUDA tools/);
  assert.match(adviceFor('CUDA driver version is insufficient for CUDA runtime version') ?? '', /driver is too old/);
  assert.equal(adviceFor('Incompatible shapes: [2] vs. [3]'), undefined);
});

test('the variant and the CUDA wheels are read from the addon and the library that it links to', (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'tensorflow-library-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  mkdirSync(join(folder, 'tensorflow-9.9.9-gpu'));
  writeFileSync(join(folder, 'tensorflow-9.9.9-gpu', 'complete.json'), JSON.stringify({ schema: 1, cuda }));
  const addon = join(folder, 'tfjs_binding.node');
  writeFileSync(addon, '\x7fELF\0libtensorflow_cc.so.2\0$ORIGIN/tensorflow-9.9.9-gpu/tensorflow\0more');
  assert.deepEqual(tensorflowLibrary(addon), { variant: 'gpu', folder: join(folder, 'tensorflow-9.9.9-gpu'), cuda });
  assert.equal(cudaVersion(cuda, 'cudnn'), '9.14.0.64');
  assert.equal(cudaVersion(cuda, 'nccl'), undefined);
  writeFileSync(addon, 'an addon of another installation');
  assert.equal(tensorflowLibrary(addon), undefined);
  assert.equal(tensorflowLibrary(join(folder, 'none')), undefined);
  assert.equal(tensorflowLibrary()?.cuda.length === 0, tensorflowLibrary()?.variant === 'cpu');
});

test('where a GPU is asked for and none is there, TensorFlow does not load', () => {
  const program = `import('./policy/tensorflow.ts').then(({ device }) => console.log(device().kind), (error) => console.log(error.name, error.message))`;
  const done = spawnSync(process.execPath, ['--import', 'tsx', '--input-type=module', '-e', program], {
    cwd: join(import.meta.dirname, '..'),
    // Hides the GPU of a machine that has one.
    env: { ...process.env, CUDA_VISIBLE_DEVICES: '-1', TERMINAL_RSI_TENSORFLOW: 'gpu' },
    encoding: 'utf8',
  });
  assert.match(done.stdout, /^UserError TensorFlow sees no GPU: .*TERMINAL_RSI_TENSORFLOW=cpu/);
});
