import assert from 'node:assert/strict';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import type { EpisodeVerdict } from '../environment/types.ts';
import { ArtifactStore } from './artifacts.ts';
import { buildEvaluation } from './evaluation.ts';
import { escapeHtml, html } from './html.ts';
import { fixtureCalibration, fixtureChunk, fixtureChunks, fixtureReportInput, fixtureSuites } from './report-fixture.ts';
import { writeReport } from './report.ts';
import { buildResult, runResultSchema } from './result.ts';
import { auditRun } from './reward-audit.ts';
import type { ChunkResult, ReportInput } from '../workflows/contract.ts';
import type { Calibration } from './calibration.ts';

let data: string;
let store: ArtifactStore;
let input: ReportInput;
before(async () => {
  data = process.env['REPORT_TEST_DATA'] ?? (await mkdtemp(path.join(tmpdir(), 'report-')));
  store = new ArtifactStore(path.join(data, 'artifacts'));
  input = await fixtureReportInput(store);
});
after(async () => {
  if (!process.env['REPORT_TEST_DATA']) await rm(data, { recursive: true, force: true });
});

async function chunkOf(verdicts: readonly Partial<EpisodeVerdict>[]): Promise<ChunkResult> {
  const base = await fixtureChunk(store, [], 1, 'none');
  const whole = verdicts.map((verdict, i) => ({
    episodeId: `e${i}`,
    suite: 'core',
    taskId: 'core-0',
    family: 'family-0',
    tier: 'easy',
    outcome: 'failed',
    checks: [],
    ...verdict,
  }));
  return { ...base, verify: { ...base.verify, verdicts: await store.putJsonLines('verdicts', whole) } };
}
const three = (a: boolean, b: boolean, c: boolean) => [
  { name: 'exists', passed: a },
  { name: 'content', passed: b },
  { name: 'format', passed: c },
];

describe('evaluation', () => {
  it('counts passes, progress and missing verdicts per task, and leaves missing verdicts out of every mean', async () => {
    const suites = fixtureSuites()
      .filter(({ name }) => name === 'core')
      .map((suite) => ({ ...suite, tasks: suite.tasks.slice(0, 2) }));
    const chunk = await chunkOf([
      { outcome: 'passed', checks: three(true, true, true) },
      { outcome: 'failed', checks: three(true, false, false) },
      { outcome: 'no-verdict' },
      { taskId: 'core-1', tier: 'medium', outcome: 'failed', checks: three(false, false, false) },
    ]);
    const { table, result } = await buildEvaluation({
      suites,
      repeats: [[await fixtureChunks(store, [chunk])], [await fixtureChunks(store, [chunk])]],
      calibration: fixtureCalibration(suites),
      store,
    });
    assert.deepEqual(table.suites[0]?.repeats[0], [
      { taskId: 'core-0', family: 'family-0', tier: 'easy', passes: 1, n: 2, noVerdict: 1, meanProgress: (1 + 1 / 3) / 2 },
      { taskId: 'core-1', family: 'family-1', tier: 'medium', passes: 0, n: 1, noVerdict: 0, meanProgress: 0 },
    ]);
    assert.deepEqual(result.suites[0]?.scores, [1 / 3, 1 / 3]);
    assert.equal(result.suites[0].standardError, 0);
    assert.deepEqual(result.tiers, { easy: 0.5, medium: 0 });
    assert.equal(result.noVerdict, 2);
    assert.equal(result.episodes, 8);
    assert.deepEqual(await store.readJson(result.table), table);
  });

  it('refuses an episode of a task that no suite lists', async () => {
    const suites = fixtureSuites().slice(0, 1);
    const chunk = await chunkOf([{ taskId: 'unknown', outcome: 'passed', checks: three(true, true, true) }]);
    await assert.rejects(
      buildEvaluation({
        suites,
        repeats: [[await fixtureChunks(store, [chunk])]],
        calibration: fixtureCalibration(fixtureSuites()),
        store,
      }),
      /core\/unknown is of no listed suite/,
    );
  });
});

const trainedOn = async (name: string, reward: 'fdr' | 'spr' | undefined, ...chunks: ChunkResult[]) => ({
  name,
  ...(reward ? { reward } : {}),
  batches: await Promise.all(
    chunks.map(async (chunk, i) => ({ purpose: i === 0 ? 'warm-up' : `ppo-${i}`, chunks: [await fixtureChunks(store, [chunk])] })),
  ),
});

describe('reward audit of a run', () => {
  const settings = { fdrFloor: 0.1, sprBonus: 0.25, sprCap: 0.5 };
  it('re-scores stored verdicts under both rewards, FDR scaled by the first training episodes', async () => {
    const calibration = fixtureCalibration(fixtureSuites());
    // First stage: family progress 1/3, so FDR is p / (1/3); the later stage is scored with the same scale.
    const first = await chunkOf([{ checks: three(true, false, false) }]);
    const later = await chunkOf([
      { checks: three(true, true, false) },
      { outcome: 'passed', checks: three(true, true, true) },
      { outcome: 'no-verdict' },
    ]);
    const audit = await auditRun(
      store,
      [{ name: 'Base', batches: [] }, await trainedOn('RSR-1', undefined, first), await trainedOn('RSR-2', undefined, later)],
      calibration,
      settings,
    );
    // FDR: 1, 2, 3 with failures 1 and 2. SPR: 1/6, 1/3, 1.25.
    assert.equal(audit?.fdr.trajectories, 3);
    assert.equal(audit.fdr.failedAtLeastOne, 2);
    assert.ok(Math.abs((audit.fdr.failedRewardShare ?? NaN) - 0.5) < 1e-12);
    assert.equal(audit.spr.failedAtLeastOne, 0);
    assert.ok(Math.abs((audit.spr.failedRewardShare ?? NaN) - 0.5 / 1.75) < 1e-12);
    assert.ok(Math.abs(audit.fdr.trajectoryDeviation - 1) < 1e-12);
  });

  it('scores a stage with the scale of its own warm-up batch, and the run with one scale', async () => {
    const calibration = fixtureCalibration(fixtureSuites());
    const rollout = await chunkOf([{ checks: three(true, false, false) }]);
    const warmUp = await chunkOf([{ checks: three(true, true, false) }]);
    const ppo = await chunkOf([{ outcome: 'passed', checks: three(true, true, true) }]);
    const stages = [await trainedOn('RSR-1', undefined, rollout), await trainedOn('RPR-1', 'fdr', warmUp, ppo)];
    const audit = await auditRun(store, stages, calibration, settings);
    assert.deepEqual(
      audit?.stages.map(({ stage, scale, trained }) => [stage, scale, trained]),
      [
        ['RSR-1', 'RSR-1 warm-up', undefined],
        ['RPR-1', 'RPR-1 warm-up', 'fdr'],
      ],
    );
    assert.equal(audit?.scale, 'RSR-1 warm-up');
    // Divided by the warm-up's 2/3: 1 and 1.5. By the run's 1/3: 1, 2 and 3, of which the two failures take half.
    assert.ok(Math.abs((audit?.stages[1]?.fdr.failedRewardShare ?? NaN) - 0.4) < 1e-12);
    assert.ok(Math.abs((audit?.fdr.failedRewardShare ?? NaN) - 0.5) < 1e-12);
  });

  it('is undefined for a run that trained on nothing', async () => {
    assert.equal(
      await auditRun(store, [{ name: 'Base', batches: [] }], fixtureCalibration([]), { fdrFloor: 0.1, sprBonus: 0, sprCap: 0.5 }),
      undefined,
    );
  });
});

describe('report', () => {
  it('writes a page and a valid result, and points latest at them', async () => {
    const { directory, result } = await writeReport({ store, dataDirectory: data, input, versions: { code: 'source:abc' } });
    assert.equal(directory, 'runs/fixture-run/report');
    const written = runResultSchema.parse(JSON.parse(await readFile(path.join(data, 'latest', 'result.json'), 'utf8')));
    assert.deepEqual(written, await store.readJson(result));
    assert.equal(written.runId, 'fixture-run');
    assert.equal(written.versions['code'], 'source:abc');
    assert.deepEqual(written.stages.map(({ name, adopted }) => [name, adopted]).at(-1), ['RPR-2', false]);
    assert.equal(written.stages[0]?.suites[0]?.repeats.length, 3);
    assert.equal(written.rewardAudit?.spr.failedAtLeastOne, 0);
  });

  it('puts the policy that the run ended with beside them: that of the last adopted stage', async () => {
    await writeReport({ store, dataDirectory: data, input });
    const again = await writeReport({ store, dataDirectory: data, input });
    const policy = path.join(data, again.directory, 'policy');
    assert.deepEqual(await readdir(policy), ['config.json']);
    assert.deepEqual(JSON.parse(await readFile(path.join(policy, 'config.json'), 'utf8')), { stage: 'RSR-2' });
  });

  it('is one page that loads nothing, with every section, and writing it again gives the same result', async () => {
    const first = await writeReport({ store, dataDirectory: data, input });
    const page = await readFile(path.join(data, first.directory, 'report.html'), 'utf8');
    for (const id of ['results', 'stages', 'training', 'audit', 'published', 'episodes', 'configuration'])
      assert.ok(page.includes(`<section id="${id}">`), id);
    assert.doesNotMatch(page, /<script|<link|<img|@import|url\((?!#)|src=/);
    assert.ok((page.match(/<svg /g)?.length ?? 0) >= 15);
    assert.match(page, /maxKlToStart was 1\.200, limit 1/);
    assert.match(page, /dropped: duplicate/);
    assert.match(page, /50\.09 %/);
    assert.match(page, /&lt;input&gt;\.txt/);
    assert.doesNotMatch(page, /<input>/);
    assert.doesNotMatch(page, /#0102[01]\d|NaN|undefined|\[object/);
    assert.equal((await writeReport({ store, dataDirectory: data, input })).result.sha256, first.result.sha256);
  });

  it('reports a run of a single stage without training', async () => {
    const small = { ...input, runKey: 'base-only', stages: input.stages.slice(0, 1) };
    const { directory } = await writeReport({ store, dataDirectory: data, input: small });
    const page = await readFile(path.join(data, directory, 'report.html'), 'utf8');
    assert.match(page, /No stage has trained/);
    assert.match(page, /nothing to re-score/);
    const result = runResultSchema.parse(JSON.parse(await readFile(path.join(data, directory, 'result.json'), 'utf8')));
    assert.equal(result.rewardAudit, null);
  });

  it('refuses a run key that is not a folder name, and a result with a score above 1', async () => {
    await assert.rejects(writeReport({ store, dataDirectory: data, input: { ...input, runKey: '../x' } }), /not a folder name/);
    const stage = input.stages[0];
    assert.ok(stage);
    const wrong = { ...input, stages: [{ ...stage, evaluation: { ...stage.evaluation, fourSuiteMean: 42 } }] };
    assert.throws(() => buildResult(wrong, undefined, {}), /fourSuiteMean/);
  });

  it('escapes markup and control characters', () => {
    assert.equal(escapeHtml(`<a href="x">&'\u001b[0m`), '&lt;a href=&quot;x&quot;&gt;&amp;&#39;\u241b[0m');
    assert.equal(html`<p>${['<b>', html`<i>${'&'}</i>`]}</p>`.text, '<p>&lt;b&gt;<i>&amp;</i></p>');
  });

  it('reads the calibration by reference', async () => {
    const missing = { ...input, calibration: { ...input.calibration, sha256: '0'.repeat(64) } };
    await assert.rejects(writeReport({ store, dataDirectory: data, input: missing }), /artifact is missing/);
    assert.equal((await store.readJson<Calibration>(input.calibration)).schema, 'terminal-rsi/calibration@1');
  });
});
