/** Dockerfiles: the ones that need no build, and what can be said of those that do. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { TaskError } from '../errors.ts';
import type { FileTree } from '../types.ts';
import { logicalLines, outlineDockerfile } from './dockerfile-lines.ts';
import { parseDockerfile } from './dockerfile.ts';

describe('parseDockerfile', () => {
  const context: FileTree = new Map(
    ['Dockerfile', 'a.txt', 'dir/b.txt', 'dir/sub/c.txt'].map((path) => [path, { data: Buffer.from(path), mode: 0o644 }]),
  );
  const parse = (text: string): ReturnType<typeof parseDockerfile> => parseDockerfile(text, context, 'Dockerfile');

  it('resolves COPY against WORKDIR as Docker does', () => {
    const paths = (copy: string): string[] => [...parse(`FROM x\nWORKDIR /w\n${copy}\n`).files.keys()];
    assert.deepEqual(paths('COPY a.txt .'), ['w/a.txt']);
    assert.deepEqual(paths('COPY a.txt b'), ['w/b']);
    assert.deepEqual(paths('COPY a.txt /etc/'), ['etc/a.txt']);
    assert.deepEqual(paths('COPY dir /d'), ['d/b.txt', 'd/sub/c.txt']);
    assert.deepEqual(paths('COPY . /all'), ['all/a.txt', 'all/dir/b.txt', 'all/dir/sub/c.txt']);
    assert.deepEqual(paths('COPY a.txt dir/b.txt in/'), ['w/in/a.txt', 'w/in/b.txt']);
    assert.deepEqual(paths('COPY ["a.txt", "/x y"]'), ['x y']);
    assert.equal(parse('FROM x\nCOPY --chmod=755 a.txt /run').files.get('run')?.mode, 0o755);
  });

  it('reads ENV in both forms, with earlier variables, and joins continued lines', () => {
    const { env, run } = parse(
      `FROM x AS base\nENV A=1 B="two words" \\\n  C='$A'\nENV OLD form of it\nENV P=\${A}:$B\n# comment\nRUN echo a && \\\n # comment inside\n  echo b\n`,
    );
    assert.deepEqual(env, { A: '1', B: 'two words', C: '1', OLD: 'form of it', P: '1:two words' });
    assert.deepEqual(run, [`cd '/' && { echo a &&   echo b\n}`]);
  });

  it('refuses everything else by line and name', () => {
    for (const [text, message] of [
      ['', /no FROM/],
      ['RUN x\nFROM y', /:1: RUN before FROM/],
      ['FROM x\nEXPOSE 80', /:2: instruction EXPOSE is not supported/],
      ['FROM x\nFROM y', /:2: a second FROM/],
      ['FROM x\n\nCOPY --from=y a b', /:3: COPY --from=y/],
      ['FROM x\nCOPY *.txt /', /without wildcards/],
      ['FROM x\nCOPY ../secret /', /no such file or directory/],
      ['FROM x\nRUN ["a"]', /shell form/],
      ['FROM x\nRUN --mount=type=cache a', /shell form/],
      ['FROM x\nENV PATH=/opt/bin:$PATH', /:2: \$PATH; expected variables that ENV sets above/],
      ['FROM x\nENV A=${B:-1}', /\$\{B:-1\}/],
    ] as const) {
      assert.throws(
        () => parse(text),
        (error) => error instanceof TaskError && message.test(error.message),
        text,
      );
    }
  });
});

describe('outlineDockerfile', () => {
  const outline = (text: string): ReturnType<typeof outlineDockerfile> => outlineDockerfile(text, 'Dockerfile');

  it('follows the last stage to the image that it starts from', () => {
    assert.deepEqual(
      outline('ARG TAG=3\nFROM golang:${TAG} AS Build\nWORKDIR /src\nFROM debian:12 AS base\nWORKDIR /work\nFROM base\nWORKDIR sub\n'),
      { image: 'debian:12', workdir: '/work/sub' },
    );
    assert.deepEqual(outline('FROM --platform=linux/amd64 a/b:1 as x\nFROM x'), { image: 'a/b:1', workdir: undefined });
  });

  it('expands what it knows, and leaves a workdir open that only the build knows', () => {
    assert.deepEqual(outline('ARG V=1\nFROM x:$V\nARG V\nENV HOME_DIR=/home/u B="q"\nWORKDIR ${HOME_DIR}/$V'), {
      image: 'x:1',
      workdir: '/home/u/1',
    });
    assert.deepEqual(outline('FROM x:${V:-2}\nARG DIR\nWORKDIR /a/$DIR'), { image: 'x:2', workdir: undefined });
    assert.deepEqual(outline('FROM x\nWORKDIR relative'), { image: 'x', workdir: undefined });
    assert.deepEqual(outline('FROM x\nWORKDIR $A\nWORKDIR /known'), { image: 'x', workdir: '/known' });
  });

  it('reads no instruction in here-documents', () => {
    const text =
      'FROM x\nRUN cat > /a <<-EOF && echo\nFROM nowhere\n\tEOF\nRUN echo $((1<<n))\nCOPY <<"A" <<B /d/\nWORKDIR /no\nA\nWORKDIR /no\nB\nWORKDIR /yes\n';
    assert.deepEqual(outline(text), { image: 'x', workdir: '/yes' });
    assert.deepEqual(
      logicalLines(text).map(({ number }) => number),
      [1, 2, 5, 6, 11],
    );
  });

  it('refuses what no build can do', () => {
    assert.throws(() => outline('# nothing\n'), /Dockerfile: no FROM/);
    assert.throws(
      () => outline('ARG A=1\nRUN x\nFROM y'),
      (error) => error instanceof TaskError && /:2: RUN before FROM/.test(error.message),
    );
  });
});
