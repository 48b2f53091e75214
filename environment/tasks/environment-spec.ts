/** From `[environment]` or `[verifier.environment]` and the directory beside it to what a sandbox starts from. */
import { join } from 'node:path';
import ignore from '@balena/dockerignore';
import { SHELL_IMAGE } from '../docker/shell-image.ts';
import { TaskError } from '../errors.ts';
import type { EnvironmentSpec, FileTree } from '../types.ts';
import { outlineDockerfile } from './dockerfile-lines.ts';
import { parseDockerfile } from './dockerfile.ts';
import { networkPolicy } from './network-rules.ts';
import { contextHash, textOf } from './task-files.ts';
import type { TaskLogger } from './task-toml.ts';
import type { EnvironmentTable } from './toml-schema.ts';

/** Where a task without a WORKDIR works. */
const defaultWorkdir = '/app';
/** Harbor sets no limits. A sandbox here has some always: those of a shell with text tools, and of an image of one's own. */
const limits = { shell: { memoryMb: 512, pidsLimit: 256 }, own: { memoryMb: 2048, pidsLimit: 1024 } };
/** Docker's least. */
const leastMemoryMb = 6;

export interface EnvironmentSource {
  readonly table: EnvironmentTable;
  /** The directory of the Dockerfile and its files. */
  readonly files: FileTree;
  readonly directory: string;
  /** In place of the table's own: the verifier's environment may take the task's image. */
  readonly dockerImage: string | undefined;
  /** task.toml, for messages. */
  readonly tomlFile: string;
  readonly logger: TaskLogger | undefined;
}

/** @throws TaskError */
export function environmentSpec(source: EnvironmentSource): { readonly spec: EnvironmentSpec; readonly workdir: string } {
  const { table, files, directory, tomlFile, logger } = source;
  if (files.has('docker-compose.yaml'))
    throw new TaskError(`${join(directory, 'docker-compose.yaml')}: compose environments are not supported; expected a Dockerfile alone`);
  if (files.has('docker-compose.yml'))
    logger?.warn(`${join(directory, 'docker-compose.yml')}: ignored, as Harbor reads docker-compose.yaml only`);
  const start = startingPoint(source);
  const workdir = table.workdir ?? start.workdir ?? defaultWorkdir;
  if (workdir === '/') throw new TaskError(`${tomlFile}: workdir ${workdir}; expected an absolute path other than /`);
  const least = start.image === SHELL_IMAGE ? limits.shell : limits.own;
  const memoryMb = table.memory_mb ?? table.memory;
  const storageMb = table.storage_mb ?? table.storage;
  const spec: EnvironmentSpec = {
    image: start.image,
    ...(start.build ? { build: start.build } : {}),
    simple: start.notSimple === undefined,
    ...(start.notSimple === undefined ? {} : { notSimple: start.notSimple }),
    env: { ...start.env, ...table.env },
    files: start.files(workdir),
    run: start.run,
    ...(table.workdir === undefined && start.workdir === undefined && start.image !== SHELL_IMAGE ? { imageWorkdir: true as const } : {}),
    buildTimeoutSec: table.build_timeout_sec,
    memoryMb: memoryMb === undefined ? least.memoryMb : Math.max(leastMemoryMb, memoryMb),
    pidsLimit: least.pidsLimit,
    ...(table.cpus === undefined ? {} : { cpus: table.cpus }),
    ...(storageMb === undefined ? {} : { storageMb }),
    // Harbor's default is a public network. Here a task that wants one says so.
    network: networkPolicy(table) ?? { mode: 'none' },
    needs: (table.gpus ?? 0) > 0 ? ['gpu'] : [],
  };
  return { spec, workdir };
}

interface StartingPoint extends Pick<EnvironmentSpec, 'image' | 'env' | 'run' | 'build' | 'notSimple'> {
  readonly workdir: string | undefined;
  readonly files: (workdir: string) => FileTree;
}

/** A Dockerfile beside `docker_image` is what the image was made from; where it is none, nothing depends on it. */
function publishedWorkdir(dockerfile: string): string | undefined {
  try {
    return outlineDockerfile(dockerfile, '').workdir;
  } catch {
    return undefined;
  }
}

/** What is sent to the engine, and what COPY can see: the files but for those that .dockerignore names. */
function buildContext(files: FileTree): FileTree {
  const rules = textOf(files, 'Dockerfile.dockerignore') ?? textOf(files, '.dockerignore');
  if (rules === undefined) return files;
  const kept = ignore.default().add(rules).createFilter();
  return new Map([...files].filter(([path]) => path === 'Dockerfile' || kept(path)));
}

function startingPoint({ files: source, directory, dockerImage }: EnvironmentSource): StartingPoint {
  const dockerfile = textOf(source, 'Dockerfile');
  if (dockerImage) {
    // As Harbor does: without a Dockerfile the directory's files are put into the workdir.
    const place = (workdir: string): FileTree => new Map([...source].map(([path, entry]) => [`${workdir.slice(1)}/${path}`, entry]));
    const files = dockerfile === undefined ? place : (): FileTree => new Map();
    return { image: dockerImage, env: {}, run: [], workdir: publishedWorkdir(dockerfile ?? ''), files };
  }
  const place = join(directory, 'Dockerfile');
  if (dockerfile === undefined) throw new TaskError(`${place}: missing; expected it, or environment.docker_image in task.toml`);
  const context = buildContext(source);
  const build = { context, hash: contextHash(context) };
  try {
    const parsed = parseDockerfile(dockerfile, context, place);
    return { ...parsed, build, files: () => parsed.files };
  } catch (error) {
    if (!(error instanceof TaskError)) throw error;
    // ENV stays the image's: what it expands to, the build alone knows.
    return { ...outlineDockerfile(dockerfile, place), build, env: {}, run: [], files: () => new Map(), notSimple: error.message };
  }
}
