/**
 * The Python packages that test scripts usually fetch: pure-Python wheels from PyPI, pinned by hash. Downloaded with pip when the first
 * verification needs them and kept in .cache/; neither set-up nor a run of the built-in tasks does. They stay zipped: Python imports
 * from wheels of pure Python as they are.
 */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdir, mkdtemp, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { lockName, withSetupLock } from '../../scripts/setup/lock.mjs';
import { InfrastructureError } from '../errors.ts';

export interface KitPackage {
  readonly version: string;
  /** The wheel's file name. */
  readonly file: string;
  readonly sha256: string;
  /** Other packages of the kit; those for older Pythons always. */
  readonly requires: readonly string[];
}

const wheel = (name: string, version: string, sha256: string, requires: readonly string[] = [], file = name): KitPackage => ({
  version,
  file: `${file.replaceAll('-', '_')}-${version}-py3-none-any.whl`,
  sha256,
  requires,
});

/** By normal name. The pytest that Terminal-Bench's test scripts ask for, its plugins, and what their tests import most. */
export const kitPackages: Readonly<Record<string, KitPackage>> = Object.fromEntries(
  (
    [
      [
        'pytest',
        '8.4.1',
        '539c70ba6fcead8e78eebbf1115e8b589e7565830d7d006a8723f19ac8a0afb7',
        ['exceptiongroup', 'iniconfig', 'packaging', 'pluggy', 'pygments', 'tomli'],
      ],
      ['pytest-json-ctrf', '0.3.5', 'e82fd1d69be2f92385bc33540063e5ad7b17b36de67764c84f3ceb9815a895e9', ['pytest']],
      ['pytest-timeout', '2.4.0', 'c42667e5cdadb151aeb5b26d114aff6bdf5a907f176a007a30b940d3d865b5c2', ['pytest']],
      [
        'pytest-asyncio',
        '1.1.0',
        '5fe2d69607b0bd75c656d1211f969cadba035030156745ee09e7d71740e58ecf',
        ['backports-asyncio-runner', 'pytest', 'typing-extensions'],
      ],
      [
        'requests',
        '2.32.4',
        '27babd3cda2a6d50b30443204ee89830707d396671944c998b5975b031ac2b2c',
        ['certifi', 'charset-normalizer', 'idna', 'urllib3'],
      ],
      ['backports-asyncio-runner', '1.2.0', '0da0a936a8aeb554eccb426dc55af3ba63bcdc69fa1a600b5bb305413a4477b5'],
      ['certifi', '2026.10.19.post1', '1324c476b4811eff41a8bc2122cd0bbd4d9c7234c725446d99ab1612b3a7fdd2'],
      ['charset-normalizer', '3.4.3', 'ce571ab16d890d23b5c278547ba694193a45011ff86a9162a71307ed9f86759a'],
      ['exceptiongroup', '1.3.0', '4d111e6e0c13d0644cad6ddaa7ed0261a0b36971f6d23e7ec9b4b9097da78a10', ['typing-extensions']],
      ['idna', '3.10', '946d195a0d259cbba61165e88e65941f16e9b36ea6ddb97f00452bae8b1287d3'],
      ['iniconfig', '2.1.0', '9deba5723312380e77435581c6bf4935c94cbfab9b1ed33ef8d238ea168eb760'],
      ['packaging', '26.3', 'd7193f7c8e4e93f444fde0262bf90af30e16fa0ad0ad44cb553c87339b23cd1c'],
      ['pluggy', '1.6.0', 'e920276dd6813095e9377c0bc5566d94c932c33b27a3e3945d8389c374dd4746'],
      ['pygments', '2.21.0', '2363c69b61c4a97c838da3b130dcd6468f4848992b21a82f2a63ec34377137d9'],
      ['tomli', '2.2.1', 'cb55c73c5f4408779d0cf3eef9f762b9c9f147a77de7b258bef0a5628adc85cc'],
      ['typing-extensions', '4.14.1', 'd1e1e3b58374dc93031d6eda2420a48ea44a36c2b4766a4fdeb3710755731d76'],
      ['urllib3', '2.5.0', 'e6b01673c0fa6a13e374b50871808eb3bf7046c4b125b216f6bf1cc604cff0dc'],
    ] as const
  ).map(([name, version, sha256, requires]) => [name, wheel(name, version, sha256, requires)]),
);

const cache = join(import.meta.dirname, '../../.cache');
const downloadMs = 300_000;

/**
 * The wheels by file name, from the cache or from PyPI. Processes that ask at the same time wait for the one that downloads.
 * @param folder the cache; for tests
 * @throws InfrastructureError with pip's own words when PyPI cannot be reached
 */
export async function kitWheels(folder: string = cache): Promise<ReadonlyMap<string, Uint8Array>> {
  const packages = Object.entries(kitPackages);
  const digest = createHash('sha256')
    .update(packages.map(([, { sha256 }]) => sha256).join())
    .digest('hex');
  const kept = join(folder, `verifier-kit-${digest.slice(0, 16)}`);
  const read = async (): Promise<Map<string, Uint8Array> | undefined> => {
    const wheels = new Map<string, Uint8Array>();
    for (const [, { file, sha256 }] of packages) {
      const bytes = await readFile(join(kept, file)).catch(() => undefined);
      if (bytes === undefined || createHash('sha256').update(bytes).digest('hex') !== sha256) return undefined;
      wheels.set(file, bytes);
    }
    return wheels;
  };
  const download = async (): Promise<Map<string, Uint8Array>> => {
    const there = await read();
    if (there) return there;
    await mkdir(folder, { recursive: true });
    const fresh = await mkdtemp(`${kept}-`);
    try {
      await pipDownload(fresh);
      await rm(kept, { recursive: true, force: true });
      await rename(fresh, kept);
    } finally {
      await rm(fresh, { recursive: true, force: true });
    }
    const made = await read();
    if (!made) throw new InfrastructureError(`${kept}: pip downloaded other files than it was asked for`);
    return made;
  };
  return (await read()) ?? withSetupLock(download, { name: lockName(kept) });
}

async function pipDownload(folder: string): Promise<void> {
  const list = join(folder, 'requirements.txt');
  const lines = Object.entries(kitPackages).map(([name, { version, sha256 }]) => `${name}==${version} --hash=sha256:${sha256}\n`);
  await writeFile(list, lines.join(''));
  // Wheels for every Python from 3.9 on, whatever the one that downloads them is.
  const any = ['--python-version', '3.9', '--implementation', 'py', '--abi', 'none', '--platform', 'any', '--only-binary', ':all:'];
  const quiet = ['--quiet', '--no-cache-dir', '--disable-pip-version-check', '--no-input', '--retries', '2'];
  const options = ['--no-deps', '--require-hashes', '-r', list, '-d', folder];
  try {
    await promisify(execFile)('python3', ['-m', 'pip', 'download', ...quiet, ...any, ...options], { timeout: downloadMs });
  } catch (error) {
    const { stderr, message } = error as Error & { stderr?: string };
    throw new InfrastructureError(
      `the verifier's Python packages cannot be downloaded from PyPI (once; they are kept in ${folder.replace(/[^/]+$/, '')}): ${(stderr?.trim() || message).split('\n').at(-1)}`,
    );
  }
}
