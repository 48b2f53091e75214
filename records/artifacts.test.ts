import assert from 'node:assert/strict';
import { mkdir, mkdtemp, readFile, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { ArtifactError, ArtifactStore } from './artifacts.ts';
import { canonicalJson } from './canonical-json.ts';

let folder: string;
before(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'artifacts-'));
});
after(async () => rm(folder, { recursive: true, force: true }));
let count = 0;
const newStore = (): ArtifactStore => new ArtifactStore(path.join(folder, `store-${count++}`));
const blobPath = (store: ArtifactStore, sha256: string): string => path.join(store.root, 'sha256', sha256.slice(0, 2), sha256);

async function sampleDirectory(): Promise<string> {
  const directory = path.join(folder, `source-${count++}`);
  await mkdir(path.join(directory, 'sub'), { recursive: true });
  await writeFile(path.join(directory, 'b.txt'), 'beta');
  await writeFile(path.join(directory, 'sub', 'a.bin'), Buffer.from([0, 1, 2, 255]));
  return directory;
}

describe('artifact store', () => {
  it('gives back the bytes under their SHA-256 and stores equal bytes once', async () => {
    const store = newStore();
    const first = await store.putBytes('metrics', Buffer.from('abc'));
    const second = await store.putBytes('metrics', Buffer.from('abc'));
    assert.deepEqual(first, second);
    // SHA-256 of "abc" from FIPS 180-4.
    assert.equal(first.sha256, 'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad');
    assert.equal(first.uri, `artifact:${first.sha256}`);
    assert.equal(first.bytes, 3);
    assert.equal((await store.readBytes(first)).toString(), 'abc');
    assert.deepEqual(await readdir(path.join(store.root, 'tmp')), []);
  });

  it('stores JSON independently of key order, and JSON lines in order', async () => {
    const store = newStore();
    const a = await store.putJson('metrics', { x: 1, y: [true, null, 'é'] });
    const b = await store.putJson('metrics', { y: [true, null, 'é'], x: 1 });
    assert.equal(a.sha256, b.sha256);
    assert.deepEqual(await store.readJson(a), { x: 1, y: [true, null, 'é'] });
    const lines = await store.putJsonLines('episodes', [{ text: 'line\nbreak' }, { n: 2 }]);
    assert.deepEqual(await store.readJsonLines(lines), [{ text: 'line\nbreak' }, { n: 2 }]);
    assert.deepEqual(await store.readJsonLines(await store.putJsonLines('episodes', [])), []);
  });

  it('names uri, path, expected and found hash when the bytes changed or are gone', async () => {
    const store = newStore();
    const ref = await store.putBytes('metrics', Buffer.from('good'));
    const file = blobPath(store, ref.sha256);
    await writeFile(file, 'evil');
    await assert.rejects(store.readBytes(ref), (error: unknown) => {
      assert.ok(error instanceof ArtifactError);
      assert.equal(error.uri, ref.uri);
      assert.equal(error.path, file);
      assert.equal(error.expected, ref.sha256);
      assert.match(error.found ?? '', /^[0-9a-f]{64}$/);
      for (const part of [ref.uri, file, ref.sha256, error.found ?? '?']) assert.ok(error.message.includes(part));
      return true;
    });
    await rm(file);
    await assert.rejects(store.readBytes(ref), /missing.*found nothing/);
  });

  it('repairs a damaged blob when the same bytes are put again', async () => {
    const store = newStore();
    const ref = await store.putBytes('metrics', Buffer.from('good'));
    await writeFile(blobPath(store, ref.sha256), 'evil');
    await store.putBytes('metrics', Buffer.from('good'));
    assert.equal((await store.readBytes(ref)).toString(), 'good');
  });

  it('refuses a hash that is not one, so that no reference can name a path', async () => {
    await assert.rejects(newStore().readBytes({ sha256: '../../etc/passwd' }), /not a hex SHA-256/);
  });

  it('keeps a directory, materialised once, with the same artifact for the same files', async () => {
    const store = newStore();
    const ref = await store.putDirectory('policy', await sampleDirectory());
    assert.deepEqual(ref, await store.putDirectory('policy', await sampleDirectory()));
    assert.equal(ref.bytes, 8);
    const tree = await store.directory(ref);
    assert.equal(await store.directory(ref), tree);
    assert.equal(await readFile(path.join(tree, 'b.txt'), 'utf8'), 'beta');
    assert.deepEqual([...(await readFile(path.join(tree, 'sub', 'a.bin')))], [0, 1, 2, 255]);
  });

  it('rebuilds a damaged tree from its blobs, and reports a damaged blob by file name', async () => {
    const store = newStore();
    const ref = await store.putDirectory('policy', await sampleDirectory());
    const tree = await store.directory(ref);
    await writeFile(path.join(tree, 'b.txt'), 'evil');
    await writeFile(path.join(tree, 'extra'), '');
    const fresh = new ArtifactStore(store.root);
    assert.equal(await readFile(path.join(await fresh.directory(ref), 'b.txt'), 'utf8'), 'beta');
    assert.deepEqual((await readdir(tree)).sort(), ['b.txt', 'sub']);

    const beta = await store.putBytes('policy', Buffer.from('beta'));
    await writeFile(blobPath(store, beta.sha256), 'evil');
    await rm(tree, { recursive: true });
    await assert.rejects(
      new ArtifactStore(store.root).directory(ref),
      (error: unknown) => error instanceof ArtifactError && error.message.includes('b.txt'),
    );
  });

  it('says so when an artifact is not a directory', async () => {
    const store = newStore();
    await assert.rejects(store.directory(await store.putJson('metrics', { a: 1 })), /not a directory artifact/);
  });

  it('survives many writers and readers of the same artifacts', async () => {
    const root = newStore().root;
    const source = await sampleDirectory();
    const results = await Promise.all(
      Array.from({ length: 12 }, async () => {
        const store = new ArtifactStore(root);
        const [blob, tree] = await Promise.all([store.putBytes('metrics', Buffer.alloc(200_000, 7)), store.putDirectory('policy', source)]);
        return [(await store.readBytes(blob)).byteLength, await readFile(path.join(await store.directory(tree), 'b.txt'), 'utf8')];
      }),
    );
    for (const result of results) assert.deepEqual(result, [200_000, 'beta']);
    assert.deepEqual(await readdir(path.join(root, 'tmp')), []);
  });
});

describe('canonical JSON', () => {
  it('sorts keys at every level and leaves undefined properties out', () => {
    assert.equal(canonicalJson({ b: { z: 1, a: 2 }, a: undefined, A: -0.5 }), '{"A":-0.5,"b":{"a":2,"z":1}}');
  });

  it('names the place of what JSON would silently change', () => {
    assert.throws(() => canonicalJson({ loss: [1, NaN] }), /\$\.loss\[1\] is NaN/);
    assert.throws(() => canonicalJson({ loss: Infinity }), /\$\.loss is Infinity/);
    assert.throws(() => canonicalJson([undefined]), /\$\[0\] is undefined/);
    assert.throws(() => canonicalJson(undefined), /\$ is undefined/);
    assert.throws(() => canonicalJson({ when: new Date(0) }), /\$\.when is a Date/);
    assert.throws(() => canonicalJson({ bytes: new Uint8Array(2) }), /\$\.bytes is a Uint8Array/);
    assert.throws(() => canonicalJson({ n: 1n }), /\$\.n is bigint/);
    assert.throws(() => canonicalJson([, 1]), /\$\[0\] is undefined/); // eslint-disable-line no-sparse-arrays -- a hole is the case under test
  });
});
