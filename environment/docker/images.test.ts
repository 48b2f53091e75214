/** Images of environments: built once, by content, told apart when they fail, pruned by last use. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, describe, it } from 'node:test';
import Docker from 'dockerode';
import { InfrastructureError, TaskError, UserError } from '../errors.ts';
import { backends, fixture, testRunKey } from '../testing.ts';
import type { EnvironmentSpec } from '../types.ts';
import { buildError, needsBuildKit } from './build.ts';
import { DiskGate } from './disk.ts';
import { baseImages, EnvironmentImages, removeImage } from './images.ts';
import { DockerProvider } from './provider.ts';

const [, backend] = await backends();
const docker = new Docker();
const set = `test-${randomUUID().slice(0, 8)}`;
const images = (options: object = {}): EnvironmentImages => new EnvironmentImages(docker, { set, ...options });
const ours = async (): Promise<string[]> =>
  (await docker.listImages({ filters: { label: [`terminal-rsi.image=${set}`] } })).flatMap(({ RepoTags }) => RepoTags ?? ['<none>:<none>']);

const { environment } = await fixture('sort-names');
/** As tasks/ loads it: `hash` stands for the content. */
const dockerfile = (text: string, limits: Partial<EnvironmentSpec> = {}): EnvironmentSpec => ({
  ...environment,
  simple: false,
  build: { context: new Map([['Dockerfile', { data: Buffer.from(text), mode: 0o644 }]]), hash: Buffer.from(text).toString('hex') },
  ...limits,
});

describe('base images', () => {
  it('are those that no stage makes, with the defaults of arguments', () => {
    assert.deepEqual(baseImages('FROM a:1\nRUN true\n'), ['a:1']);
    assert.deepEqual(baseImages('ARG V=2\nFROM --platform=linux/amd64 a:$V AS x\nFROM b:${V}\nCOPY --from=x / /\nFROM x\n'), [
      'a:2',
      'b:2',
    ]);
    assert.deepEqual(baseImages('FROM scratch\nFROM $UNSET\n'), []);
  });
});

describe('a failed build', () => {
  const fault = (message: string, output = '', statusCode?: number): string =>
    buildError(Object.assign(new Error(message), { statusCode }), output, 'place').constructor.name;
  it("is the task's where an instruction failed, the machine's where the network or the engine did", () => {
    assert.equal(fault("The command '/bin/sh -c make' returned a non-zero code: 2", 'main.c:1: error'), 'TaskError');
    assert.equal(fault('executor failed running [/bin/sh -c make]: exit code: 2'), 'TaskError');
    assert.equal(fault('COPY failed: file not found in build context'), 'TaskError');
    assert.equal(fault('dockerfile parse error line 3: unknown instruction: FOO', '', 400), 'TaskError');
    assert.equal(
      fault("The command 'apt-get update' returned a non-zero code: 100", 'Temporary failure resolving deb.debian.org'),
      'InfrastructureError',
    );
    assert.equal(fault("The command 'make' returned a non-zero code: 137"), 'InfrastructureError');
    assert.equal(fault('write /var/lib/docker/x: no space left on device', '', 500), 'InfrastructureError');
    assert.equal(fault('socket hang up'), 'InfrastructureError');
  });

  it('needs BuildKit only for what the classic builder does not know', () => {
    assert.deepEqual(
      ['RUN --mount=type=cache,target=/x true', 'COPY --chmod=755 a b', 'RUN <<EOF\ntrue\nEOF', 'RUN cat <<EOF > x\nEOF'].map(
        needsBuildKit,
      ),
      [true, true, true, true],
    );
    assert.deepEqual(['# syntax=docker/dockerfile:1\nFROM a\nCOPY --chown=a --from=b c d\nRUN echo --mount x'].map(needsBuildKit), [false]);
  });
});

describe('images of environments', { skip: backend?.skip ?? false }, () => {
  after(async () => {
    for (const name of await ours()) await removeImage(docker, name);
    assert.deepEqual(await ours(), []);
  });

  it('are built once for all who ask, also in another process, and anew for another content', async () => {
    const spec = dockerfile('FROM terminal-rsi/shell:1\nWORKDIR /srv\nRUN date +%N > /stamp\nUSER 1000\n');
    const first = images();
    const [one, two] = await Promise.all([first.ensure(spec, 'task'), first.ensure(spec, 'task')]);
    assert.deepEqual(one, { name: two.name, user: '1000', workdir: '/srv', built: true });
    const { Id: id } = await docker.getImage(one.name).inspect();
    assert.deepEqual(await images().ensure(spec, 'task'), one);
    assert.equal((await docker.getImage(one.name).inspect()).Id, id);
    assert.notEqual((await first.ensure(dockerfile('FROM terminal-rsi/shell:1\nRUN true\n'), 'task')).name, one.name);
  });

  it('carry what the builder said when an instruction fails, and leave no layers', async () => {
    // Of this build alone: others may be building.
    const layers = async (): Promise<string[]> => {
      const dangling = await docker.listImages({ all: true, filters: { dangling: ['true'] } });
      const histories = dangling.map(({ Id }) => docker.getImage(Id).history() as Promise<{ CreatedBy: string }[]>);
      return (await Promise.allSettled(histories)).flatMap((history) =>
        history.status === 'fulfilled' ? history.value.map(({ CreatedBy }) => CreatedBy).filter((by) => by.includes(set)) : [],
      );
    };
    await assert.rejects(
      images().ensure(dockerfile(`FROM terminal-rsi/shell:1\nRUN echo ${set} > /x\nRUN cat /x; exit 3\n`), 'some-task'),
      (error) => {
        assert.ok(error instanceof TaskError && error.type === 'SandboxBuildFailedError');
        assert.match(error.message, new RegExp(`^some-task: its image cannot be built: .*non-zero code: 3[^]*\\n${set}\\n`));
        return true;
      },
    );
    assert.deepEqual(await layers(), []);
    await assert.rejects(images().ensure(dockerfile('FROM terminal-rsi/shell:1\nFOO bar\n'), 'some-task'), TaskError);
  });

  it('have a time limit of their own, after which the machine is to blame', async () => {
    const slow = dockerfile('FROM terminal-rsi/shell:1\nRUN sleep 60\n', { buildTimeoutSec: 1 });
    await assert.rejects(
      images().ensure(slow, 'task'),
      (error) => error instanceof InfrastructureError && error.type === 'EnvironmentStartTimeoutError' && /within 1 s/.test(error.message),
    );
  });

  it('may use what only BuildKit knows', async () => {
    const spec = dockerfile(`FROM terminal-rsi/shell:1\nRUN --mount=type=tmpfs,target=/scratch echo ${set} > /made\n`);
    assert.equal((await images().ensure(spec, 'task')).built, true);
  });

  it('above the limit go by last use, never while a container uses them (failure 20)', async () => {
    const megabyte = (name: string): EnvironmentSpec =>
      dockerfile(`FROM terminal-rsi/shell:1\nRUN head -c 1000000 /dev/urandom > /${name}\n`);
    const roomy = images();
    const old = await roomy.ensure(megabyte('old'), 'task');
    const middle = await roomy.ensure(megabyte('middle'), 'task');
    const used = await roomy.ensure(megabyte('used'), 'task');
    const container = await docker.createContainer({ Image: used.name, Cmd: ['/bin/sh'] });
    try {
      await images().ensure(megabyte('old'), 'task'); // now the last used
      const strict = images({ limitBytes: 2_500_000, restMs: 0 });
      await strict.prune();
      assert.deepEqual(
        (await ours()).filter((name) => [old, middle, used].some((each) => each.name === name)).sort(),
        [old.name, used.name].sort(),
      );
      await images({ limitBytes: 0, restMs: 0 }).prune();
      assert.deepEqual(await ours(), [used.name]);
      assert.equal((await roomy.ensure(megabyte('old'), 'task')).built, true);
    } finally {
      await container.remove({ force: true });
    }
  });

  it('are refused, as is a start, while the disk has less room than asked for (failure 20)', async () => {
    const gate = new DiskGate(docker, 2 ** 60);
    const isRefusal = (error: unknown): boolean =>
      error instanceof InfrastructureError &&
      error.type === 'InsufficientDiskSpaceError' &&
      /^not enough space to (build the image of|start a container).*: \d+\.\d GB free on the disk of \/.*, expected 1073741824\.0 GB/.test(
        error.message,
      );
    await assert.rejects(images({ gate }).ensure(dockerfile('FROM terminal-rsi/shell:1\nRUN : never\n'), 'task'), isRefusal);
    const provider = new DockerProvider({ docker, minFreeBytes: 2 ** 60 });
    const task = await fixture('sort-names');
    await assert.rejects(provider.start(task, { runKey: testRunKey, episodeId: 'full', purpose: 'check' }), isRefusal);
    await provider.close();
  });

  it('say how to get a base that is not here', async () => {
    await assert.rejects(
      images().ensure(dockerfile('FROM localhost:1/nosuch:1\nRUN true\n'), 'task'),
      (error) =>
        error instanceof UserError && /localhost:1\/nosuch:1 is not on this machine.*docker load.*made on demand/.test(error.message),
    );
  });
});
