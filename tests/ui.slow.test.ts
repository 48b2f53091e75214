/**
 * What a person does and sees in the Temporal Web UI, in a real browser against a real server, real workers and the real
 * trainer: one smoke run that waits for approval is started, watched, paused, resumed, approved and found again, and its report
 * is opened from its page. Skipped where there is no browser (tests/ui/browser.ts).
 *
 * With UPDATE_SCREENSHOTS=1 it also makes the README's pictures of the UI (docs/images/).
 */
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import type { Browser, Locator, Page } from 'playwright-core';
import { profiles } from '../workflows/profiles.ts';
import { freePort } from './free-port.ts';
import { TemporalServer } from './temporal.ts';
import { browserMissing, launchBrowser } from './ui/browser.ts';
import { Screenshots } from './ui/screenshots.ts';
import { TemporalUi } from './ui/temporal-ui.ts';
import { WorkerProcesses } from './worker-processes.ts';

/** For what the run has to get to; a person's clicks have Playwright's own limit. */
const PATIENCE_MS = 240_000;
const CLICK_MS = 60_000;

const skip = browserMissing();
const basePolicy = process.env['TERMINAL_RSI_TEST_POLICY'] ?? 'models/tiny-base';

describe('a run in the Temporal UI', { skip }, () => {
  let server: TemporalServer;
  let data: string;
  let workers: WorkerProcesses;
  let browser: Browser;
  let page: Page;
  let ui: TemporalUi;
  let pictures: Screenshots;
  let reports: string;

  before(async () => {
    data = await mkdtemp(path.join(tmpdir(), 'terminal-rsi-ui-'));
    [server, browser] = await Promise.all([TemporalServer.start({ ui: true }), launchBrowser()]);
    const trainerPort = await freePort();
    const statusPort = await freePort();
    reports = `http://127.0.0.1:${statusPort}/reports/`;
    workers = new WorkerProcesses({ address: server.address, data, trainerUrl: `http://127.0.0.1:${trainerPort}` });
    await Promise.all([
      workers.start('rollout-worker', { TERMINAL_RSI_STATUS_ADDRESS: `127.0.0.1:${statusPort}` }),
      workers.start('gpu-worker'),
    ]);
    page = await browser.newPage({ viewport: { width: 1440, height: 900 }, timezoneId: 'UTC' });
    page.setDefaultTimeout(CLICK_MS);
    ui = new TemporalUi(page, server.uiUrl);
    pictures = new Screenshots(page);
  });
  after(async () => {
    await browser?.close();
    await workers?.stop();
    await server?.stop();
    await rm(data, { recursive: true, force: true });
  });

  it('an input that is wrong fails the run, and its page names field, value and what was expected', async () => {
    const form = { workflowId: 'wrong-input', input: { profile: 'smoke', seed: -1, rsr: { epoch: 3 } } };
    await ui.start(form);
    await ui.status('Failed').waitFor();
    const result = ui.payload('Result');
    await holds(result, 'seed: got -1, expected a whole number between 0 and 4294967295');
    await holds(result, 'rsr.epoch: got 3, expected no such field; the nearest known one is rsr.epochs');
    await holds(ui.payload('Input'), '"seed": -1');
    await pictures.take('ui-wrong-input', { height: 680 });
  });

  it('{} starts a run with the profile quick, and Request Cancellation ends it', async () => {
    await ui.start({ workflowId: 'all-defaults', input: {} });
    await ui.status('Running').waitFor();
    await ui.currentDetails('profile quick', PATIENCE_MS);
    await ui.main.getByRole('button', { name: 'Request Cancellation' }).click();
    const dialog = page.getByRole('dialog', { name: 'Cancel Workflow' });
    await dialog.getByRole('button', { name: 'Confirm' }).click();
    await ui.status('Canceled').waitFor({ timeout: PATIENCE_MS });
  });

  it('the current details of a run follow it to the stage that waits for approval', async () => {
    const form = { workflowId: 'first-run', input: { profile: 'smoke', basePolicy, requireApproval: true } };
    await ui.fillStartForm(form);
    await pictures.take('ui-start-form', { height: 1020 });
    await ui.start(form);
    const early = await ui.currentDetails('running · profile smoke · Base', PATIENCE_MS);
    await holds(early, 'No stage has been evaluated yet.');
    const later = await ui.currentDetails('waiting-for-approval · profile smoke · RSR-1', PATIENCE_MS);
    await later.getByRole('row', { name: /^four-suite mean\s+\d/ }).waitFor();
    await holds(later, 'send the update approveStage with {"stage": "RSR-1"}');
    await holds(later, 'Report, written when the run ends');
  });

  it('the timeline of a run names the stage and the tasks of its activities', async () => {
    await ui.open('first-run');
    await ui.timelineRow(/calibrate • Base · gate, nop and reference solution · \w+\/[\w-]+ … \(\d+ tasks\)/).waitFor();
    await ui.timelineRow(/Base · evaluation on \d suites/).waitFor();
  });

  it('the signal pauseRun holds the run, and the update resume lets it go on', async () => {
    await ui.open('first-run');
    await ui.send('Signal', 'pauseRun');
    await ui.currentDetails('paused · profile smoke', PATIENCE_MS);
    await ui.send('Update', 'resume');
    await ui.currentDetails('waiting-for-approval · profile smoke', PATIENCE_MS);
    await ui.send('Update', 'pause');
    await ui.currentDetails('paused · profile smoke', PATIENCE_MS);
    await ui.send('Signal', 'resumeRun');
    await ui.currentDetails('waiting-for-approval · profile smoke', PATIENCE_MS);
  });

  it('runs are found by stage, status, policy and score', async () => {
    await ui.filter('RsiStatus', 'waiting-for-approval');
    await ui.listed('first-run').waitFor();
    await ui.listed('wrong-input').waitFor({ state: 'detached' });
    const policy = await policyOf(server, 'first-run');
    for (const query of [`RsiPolicy = "${policy}"`, 'RsiStage = "RSR-1"', 'RsiScore >= 0', 'RsiProfile = "smoke" AND RsiScore <= 100']) {
      await ui.search(query);
      await ui.listed('first-run').waitFor();
      assert.equal(await ui.listed('wrong-input').count(), 0, query);
      assert.equal(await ui.listed('all-defaults').count(), 0, query);
    }
    await ui.search('RsiScore > 100');
    await ui.main.getByText('No Workflows').first().waitFor();
  });

  it('approveStage refuses a stage that does not wait, with the ones that do, and lets the right one start', async () => {
    await ui.open('first-run');
    const reason = 'stage: got {"stage":"RSR-7"}, expected one of RSR-1, RPR-1';
    await ui.sendRefused('Update', 'approveStage', { stage: 'RSR-7' }, reason);
    await ui.send('Update', 'approveStage', { stage: 'RSR-1', by: 'a reader' });
    await ui.currentDetails(/running · profile smoke · RSR-1/, PATIENCE_MS);
    const details = await ui.currentDetails('waiting-for-approval · profile smoke · RPR-1', PATIENCE_MS);
    await details.getByRole('columnheader', { name: /^RSR-1/ }).waitFor();
    await pictures.take('ui-current-details', { height: 900 });
    await ui.search('WorkflowType = "trainingRun"');
    await ui.columns(['RsiStage', 'RsiStatus', 'RsiScore', 'RsiPolicy'], ['Run ID', 'Type', 'End']);
    await ui.listed('first-run').waitFor();
    await pictures.take('ui-list', { height: 520 });
    await ui.open('first-run');
    await ui.send('Update', 'approveStage', {});
  });

  it('the page of the finished run leads to its report', async () => {
    await ui.status('Completed').waitFor({ timeout: PATIENCE_MS });
    await ui.tab('Timeline');
    await holds(ui.payload('Result'), reports);
    const details = await ui.currentDetails('finished · profile smoke', PATIENCE_MS);
    const opened = page.waitForEvent('popup');
    await details.getByRole('link', { name: 'Report of this run' }).click();
    const report = await opened;
    assert.ok(report.url().startsWith(reports), report.url());
    await report.getByRole('heading', { level: 1 }).waitFor();
    await report.getByText('four-suite mean').first().waitFor();
    await report.close();
  });

  it('the timelines of its stages name stage, iteration and tasks of each activity', async () => {
    const { chunkSize } = profiles.smoke.rollout;
    await ui.open('first-run/rsr-1/rollout');
    for (const activity of ['rollout', 'verify']) {
      const row = new RegExp(`${activity} • RSR-1 · rollout · chunk 1 of 2 · train/[\\w-]+ … \\(\\d+ tasks, ${chunkSize} episodes\\)`);
      await ui.timelineRow(row).waitFor();
    }
    await ui.open('first-run/rsr-1');
    await ui.timelineRow(/rewrite • RSR-1 · rewrite · part 1 of 1 · train\/[\w-]+ … \(6 tasks\)/).waitFor();
    await ui.timelineRow(/fineTuneActor • RSR-1 · fine-tune · 1 epoch · \d+ runbooks? of train\/[\w-]+ … \(6 tasks\)/).waitFor();
    await ui.open('first-run/rpr-1');
    await ui
      .timelineRow(/warmUpCritic • RPR-1 · critic warm-up, four value-only epochs · train\/[\w-]+ … \(4 tasks, 8 episodes\)/)
      .waitFor();
    await ui.timelineRow(/reward • RPR-1 · ppo-1 · reward \w+ · train\/[\w-]+ … \(4 tasks, 8 episodes\)/).waitFor();
    await ui.timelineRow(/jointPpo • RPR-1 · PPO iteration 1 of 1 · train\/[\w-]+ … \(4 tasks, 8 episodes\)/).waitFor();
    await pictures.take('ui-timeline', { height: 560, from: ui.main.getByRole('heading', { name: 'Timeline' }) });
  });
});

/** Waits until the element's text holds `text`. */
async function holds(element: Locator, text: string): Promise<void> {
  await element.filter({ hasText: text }).waitFor();
}

/** What a person would copy from the tab *Search Attributes*. */
async function policyOf(server: TemporalServer, workflowId: string): Promise<string> {
  const { searchAttributes } = await server.client.workflow.getHandle(workflowId).describe();
  return String(searchAttributes['RsiPolicy']?.[0]);
}
