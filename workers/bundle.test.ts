import assert from 'node:assert/strict';
import { mkdtemp, readdir, readFile, rm, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, afterEach, before, describe, it } from 'node:test';
import { UserError } from '../environment/errors.ts';
import { repoRoot } from '../records/paths.ts';
import { bundleStamp, loadWorkflowBundle, stampText } from './bundle.ts';
import type { WorkflowBundle } from './bundle.ts';

let folder: string;
let cache: string;
let first: WorkflowBundle[];
before(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'terminal-rsi-bundle-'));
  cache = path.join(folder, 'cache');
  first = await Promise.all([loadWorkflowBundle({ cache }), loadWorkflowBundle({ cache })]);
});
after(async () => rm(folder, { recursive: true, force: true }));
afterEach(() => delete process.env['TERMINAL_RSI_WORKFLOW_BUNDLE']);

describe('the bundle cache', () => {
  it('is filled by two workers that start at once, with one whole file', async () => {
    assert.deepEqual(
      first.map(({ origin }) => origin),
      ['built', 'built'],
    );
    assert.equal((await readdir(cache)).length, 1);
    const again = await loadWorkflowBundle({ cache });
    assert.equal(again.origin, 'cache');
    assert.ok(first.some(({ code }) => code === again.code));
  });

  it('builds anew what is damaged', async () => {
    const { file = '', code } = await loadWorkflowBundle({ cache });
    await truncate(file, Math.floor(code.length / 2));
    assert.equal((await loadWorkflowBundle({ cache })).origin, 'built');
    assert.equal((await loadWorkflowBundle({ cache })).origin, 'cache');
  });

  it('is told apart by the interceptors that are built in', async () => {
    const module = path.join(folder, 'interceptors.ts');
    await writeFile(module, 'export const interceptors = () => ({});\n');
    const before = stampText(await bundleStamp({ interceptorModules: [module] }));
    await writeFile(module, 'export const interceptors = () => ({ inbound: [] });\n');
    const texts = [before, stampText(await bundleStamp({ interceptorModules: [module] })), stampText(await bundleStamp())];
    assert.equal(new Set(texts).size, 3);
  });
});

it('the stamp covers every source and every package of the bundle', async () => {
  const { code, stamp } = await loadWorkflowBundle({ cache });
  const map = code.slice(code.lastIndexOf('sourceMappingURL='));
  const { sources } = JSON.parse(Buffer.from(map.slice(map.indexOf(',') + 1), 'base64').toString()) as { sources: string[] };
  const ours = sources
    .filter((file) => file.startsWith(repoRoot) && !file.includes('node_modules'))
    .map((file) => path.relative(repoRoot, file));
  assert.ok(ours.includes('workflows/training-run.ts'));
  assert.deepEqual(
    ours.filter((file) => !/^(workflows|method)\//.test(file)),
    [],
  );
  const packages = new Set(sources.flatMap((file) => /.*node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(file)?.[1] ?? []));
  // Beside the SDK, its own dependencies that it bundles.
  const sdk = ['@temporalio/common', '@temporalio/workflow', 'long', 'ms', 'nexus-rpc'];
  assert.deepEqual([...packages].sort(), [...sdk, ...Object.keys(stamp.packages)].sort());
});

describe('TERMINAL_RSI_WORKFLOW_BUNDLE', () => {
  /** A copy of the cached bundle whose file `change` has edited. */
  const prebuilt = async (change: (text: string) => string): Promise<string> => {
    delete process.env['TERMINAL_RSI_WORKFLOW_BUNDLE'];
    const { file = '' } = await loadWorkflowBundle({ cache });
    const copy = path.join(folder, 'prebuilt.js');
    await writeFile(copy, change(await readFile(file, 'utf8')));
    process.env['TERMINAL_RSI_WORKFLOW_BUNDLE'] = copy;
    return copy;
  };
  const refused = async (expected: RegExp): Promise<void> => {
    await assert.rejects(loadWorkflowBundle({ cache }), (error: Error) => error instanceof UserError && expected.test(error.message));
  };

  it('is run when it fits this install', async () => {
    const file = await prebuilt((text) => text);
    const { origin, file: read } = await loadWorkflowBundle({ cache });
    assert.deepEqual([origin, read], ['file', file]);
  });

  it('of another SDK version is refused, with both versions and the command that builds it', async () => {
    const file = await prebuilt((text) => text.replace(/"sdk":"[^"]*"/, '"sdk":"1.20.0"'));
    const { sdk } = await bundleStamp();
    await refused(new RegExp(`${file} was built from sdk 1\\.20\\.0, .*expected sdk ${sdk}, .*npm run bundle -- --out ${file}`));
  });

  it('of other sources is refused', async () => {
    await prebuilt((text) => text.replace(/"source":"[^"]*"/, '"source":"0123456789ab"'));
    await refused(/source 0123456789ab.*expected .*source [0-9a-f]{12}/);
  });

  it('that is damaged, is something else or is missing is refused', async () => {
    await prebuilt((text) => text.slice(0, -1));
    await refused(/is damaged/);
    await prebuilt((text) => text.slice(100));
    await refused(/does not begin with the stamp/);
    process.env['TERMINAL_RSI_WORKFLOW_BUNDLE'] = path.join(folder, 'nowhere.js');
    await refused(/nowhere\.js cannot be read \(ENOENT/);
  });
});
