/** The report page: results in tables and plots, how each stage trained, the reward audit, and sample episodes. Pure: no I/O. */
import type { RewardAudit } from '../method/rewards.ts';
import type { ReportInput, StageResult } from '../workflows/contract.ts';
import { percent, tableCells, tableStage } from '../workflows/table.ts';
import { lineChart } from './charts.ts';
import { html, type Html } from './html.ts';
import { PUBLISHED_AUDIT, PUBLISHED_FOUR_SUITE_MEAN, PUBLISHED_ROWS, PUBLISHED_SOURCE, PUBLISHED_STAGES } from './published.ts';
import { framedPage } from './report-frame.ts';
import { table } from './report-table.ts';
import { trainingSection } from './report-training.ts';
import type { RunAudit } from './reward-audit.ts';
import type { SampleEpisode } from './sample-episodes.ts';

export interface ReportData {
  readonly input: ReportInput;
  readonly audit: RunAudit | undefined;
  readonly samples: readonly SampleEpisode[];
  readonly versions: Readonly<Record<string, string>>;
}

/** The whole page as a string; loads nothing and runs no script. */
export function reportPage(data: ReportData): string {
  const { input } = data;
  const title = `Terminal-RSI run: ${input.config.profile}, seed ${input.config.seed}`;
  const sections = [
    ['results', 'Results by suite and stage', results(input.stages)],
    ['stages', 'Stages', stageList(input.stages)],
    ['training', 'Training', trainingSection(input.stages)],
    ['audit', 'Reward audit', auditSection(data.audit)],
    ['published', 'Published numbers', published(input.stages)],
    ['episodes', 'Sample episodes', episodes(data.samples)],
    ['configuration', 'Configuration and versions', configuration(data)],
  ] as const;
  const header = html`<p class="lead">${summary(input)}</p>
    ${tiles(input)}`;
  return framedPage(title, header, sections);
}

function lastAdopted(stages: readonly StageResult[]): StageResult | undefined {
  return stages.findLast((stage) => stage.adopted);
}

function summary({ stages, config }: ReportInput): string {
  const names = stages.map(({ name }) => name).join(' → ');
  const refused = stages.filter((stage) => !stage.adopted).map(({ name }) => name);
  const adopted = refused.length === 0 ? 'Every stage was adopted.' : `Not adopted: ${refused.join(', ')}.`;
  return `${names}, trained and evaluated in the ${config.sandbox} sandbox, ${config.evaluation.repeats} evaluation(s) of each stage. ${adopted}`;
}

function tiles(input: ReportInput): Html {
  const { stages, config, wallSeconds } = input;
  const base = stages[0];
  const end = lastAdopted(stages);
  const sum = (pick: (stage: StageResult) => number): string =>
    stages.reduce((total, stage) => total + pick(stage), 0).toLocaleString('en-US');
  const share = (stage: StageResult | undefined): string =>
    stage
      ? percent(stage.evaluation.fourSuiteMean, config.evaluation.repeats > 1 ? stage.evaluation.fourSuiteStandardError : undefined)
      : '–';
  const gain = base && end ? 100 * (end.evaluation.fourSuiteMean - base.evaluation.fourSuiteMean) : 0;
  const tile = (name: string, value: string, detail = ''): Html =>
    html`<div>
      <dt>${name}</dt>
      <dd>${value}${detail ? html`<small>${detail}</small>` : ''}</dd>
    </div>`;
  return html`<dl class="tiles">
    ${tile('Base, four-suite mean', `${share(base)} %`)}
    ${tile(`${end?.name ?? 'Last'}, four-suite mean`, `${share(end)} %`, `${gain >= 0 ? '+' : '−'}${Math.abs(gain).toFixed(1)} points`)}
    ${tile('Wall time', `${Math.floor(wallSeconds / 60)} min ${Math.round(wallSeconds % 60)} s`)}
    ${tile(
      'Training episodes',
      sum((stage) => stage.counts.episodes),
      `${sum((stage) => stage.counts.agentTokens)} agent tokens`,
    )}
    ${tile(
      'Evaluation episodes',
      sum((stage) => stage.evaluation.episodes),
      `${sum((stage) => stage.evaluation.noVerdict)} without a verdict`,
    )}
  </dl>`;
}

function results(stages: readonly StageResult[]): Html {
  const cells = tableCells(stages.map(tableStage));
  const names = stages.map(({ name }) => name);
  const suites = stages[0]?.evaluation.suites ?? [];
  const curves = suites.map((suite, i) => {
    const scores = stages.map((stage) => stage.evaluation.suites.find(({ name }) => name === suite.name));
    return {
      name: suite.name,
      colour: i % 7,
      dashed: !suite.headline,
      values: scores.map((score) => score && 100 * score.mean),
      errors: scores.map((score) => score && 100 * score.standardError),
    };
  });
  const mean = {
    ...{ name: 'four-suite mean', colour: 7, emphasis: true },
    values: stages.map((stage) => 100 * stage.evaluation.fourSuiteMean),
    errors: stages.map((stage) => 100 * stage.evaluation.fourSuiteStandardError),
  };
  const tierNames = ['easy', 'medium', 'hard', 'extreme'] as const;
  const tiers = tierNames
    .filter((tier) => stages.some((stage) => stage.evaluation.tiers[tier] !== undefined))
    .map((tier, i) => ({ name: tier, colour: i, values: stages.map((stage) => scaled(stage.evaluation.tiers[tier])) }));
  return html`${table('', cells.header, cells.rows, true)}
    <p class="note">
      ${cells.footnotes.join(' ')} A process suite is scored by the mean share of valid checks passed, the others by strict success.
    </p>
    ${lineChart({ title: 'Suite scores by stage, percent, with the standard error of the evaluations. Dashed: not in the four-suite mean.', x: names, yName: '%', yMin: 0, yMax: 100, height: 400, series: [mean, ...curves] })}
    ${
      tiers.length > 0
        ? html`<h3>By tier</h3>
            ${lineChart({ title: 'Strict success by difficulty tier, percent, over all evaluation suites and repeats (dev left out).', x: names, yName: '%', yMin: 0, yMax: 100, height: 300, series: tiers })}`
        : ''
    }`;
}

const scaled = (share: number | undefined): number | undefined => (share === undefined ? undefined : 100 * share);

function stageList(stages: readonly StageResult[]): Html {
  const rows = stages.map((stage) => [
    stage.name,
    html`<span class="badge ${stage.adopted ? 'good' : 'bad'}">${stage.adopted ? 'adopted' : 'not adopted'}</span
      >${stage.record.reusedFrom ? html` <small title="run ${stage.record.reusedFrom.runKey}">reused</small>` : ''}`,
    stage.reward?.toUpperCase(),
    stage.counts.episodes.toLocaleString('en-US'),
    stage.counts.agentTokens.toLocaleString('en-US'),
    `${Math.round(stage.seconds)} s`,
    html`<code title="${stage.policy.sha256}">${stage.policy.sha256.slice(0, 12)}</code>`,
    html`<code title="${stage.record.hash}">${stage.record.index} · ${stage.record.hash.slice(0, 12)}</code>`,
    `${stage.decision}${stage.stopped ? ` (${stage.stopped})` : ''}`,
  ]);
  return table(
    'Episodes and tokens of training; evaluation is not counted.',
    ['stage', 'outcome', 'reward', 'episodes', 'agent tokens', 'time', 'policy', 'record', 'decision'],
    rows,
  );
}

const AUDIT_FIGURES: readonly {
  readonly name: string;
  readonly show: (
    audit: Pick<
      RewardAudit,
      'failedRewardShare' | 'failedAtLeastOne' | 'familyMeanDeviation' | 'trajectoryDeviation' | 'families' | 'trajectories'
    >,
  ) => string;
}[] = [
  { name: 'trajectories', show: (audit) => audit.trajectories.toLocaleString('en-US') },
  { name: 'families', show: (audit) => String(audit.families) },
  {
    name: 'share of all reward taken by failed trajectories',
    show: (audit) => (audit.failedRewardShare === undefined ? 'undefined (no reward)' : `${(100 * audit.failedRewardShare).toFixed(2)} %`),
  },
  { name: 'failed trajectories with reward ≥ 1', show: (audit) => String(audit.failedAtLeastOne) },
  { name: 'standard deviation of family means', show: (audit) => audit.familyMeanDeviation.toFixed(2) },
  { name: 'standard deviation of trajectories', show: (audit) => audit.trajectoryDeviation.toFixed(2) },
];

function auditSection(audit: ReportData['audit']): Html {
  if (!audit) return html`<p>The run has no training episode with a verdict, so there is nothing to re-score.</p>`;
  const rows = AUDIT_FIGURES.map(({ name, show }) => [
    name,
    show(audit.fdr),
    show(audit.spr),
    show(PUBLISHED_AUDIT.fdr),
    show(PUBLISHED_AUDIT.spr),
  ]);
  return html`<p>
      All training episodes of this run, re-scored from their stored verdicts under both rewards with the outcomes unchanged
      (${audit.fdr.passed} of ${audit.fdr.trajectories} passed). FDR divides by each family's mean progress over one batch for the whole
      run, its first (${audit.scale}).
    </p>
    ${table('', ['figure', 'FDR, this run', 'SPR, this run', 'FDR, published', 'SPR, published'], rows)}
    <h3>By stage</h3>
    <p class="note">
      Each stage with the scale that its own training used, that of its warm-up batch; an RSR stage has none of its own and takes the run's.
    </p>
    ${table(
      '',
      ['stage', 'reward', 'scale of FDR', ...AUDIT_FIGURES.map(({ name }) => name)],
      audit.stages.flatMap(({ stage, scale, trained, fdr, spr }) => [
        [stage, trained === 'fdr' ? 'FDR (trained on)' : 'FDR', scale, ...AUDIT_FIGURES.map(({ show }) => show(fdr))],
        [stage, trained === 'spr' ? 'SPR (trained on)' : 'SPR', '', ...AUDIT_FIGURES.map(({ show }) => show(spr))],
      ]),
    )}`;
}

function published(stages: readonly StageResult[]): Html {
  const names = [...new Set([...PUBLISHED_STAGES, ...stages.map(({ name }) => name)])];
  const ours = names.map((name) => scaled(stages.find((stage) => stage.name === name)?.evaluation.fourSuiteMean));
  const theirs = names.map((name) => PUBLISHED_FOUR_SUITE_MEAN[PUBLISHED_STAGES.indexOf(name as (typeof PUBLISHED_STAGES)[number])]);
  return html`<div class="published">
    <p>
      <span class="badge neutral">published</span> These numbers are the paper's (${PUBLISHED_SOURCE}), not of this run. Its model, suites
      and compute are others; the comparison is of the shape of the curve, not of its height.
    </p>
    ${table(
      'Published, percent',
      ['suite', ...PUBLISHED_STAGES],
      PUBLISHED_ROWS.map(({ name, values }) => [name, ...values]),
    )}
    ${lineChart({
      title: 'Four-suite mean by stage, percent: this run on its own suites, and the published one on Terminal-Bench.',
      ...{ x: names, yName: '%', yMin: 0, yMax: 100, height: 280 },
      series: [
        { name: 'this run', values: ours, emphasis: true, colour: 0 },
        { name: 'published (paper)', values: theirs, dashed: true, colour: 6 },
      ],
    })}
  </div>`;
}

/** Outputs are cut for the page; the artifact has them whole. */
const SHOWN_CHARACTERS = 1500;
const cut = (text: string): string =>
  text.length > SHOWN_CHARACTERS ? `${text.slice(0, SHOWN_CHARACTERS)}\n… ${text.length - SHOWN_CHARACTERS} more characters` : text;

function episodes(samples: readonly SampleEpisode[]): Html {
  if (samples.length === 0) return html`<p>The run has no training episodes.</p>`;
  return html`<p class="note">
      A success and a failure from the last rollouts of each training stage. An RSR stage's rollouts are made by the policy before it: those
      of RSR-1 are Base's, which has none of its own.
    </p>
    ${samples.map(({ stage, outcome, episode, verdict }) => {
      const passed = verdict.checks.filter((check) => check.passed).length;
      const commands = episode.turns.flatMap((turn) => turn.commands);
      return html`<details>
        <summary>
          ${stage}: <span class="badge ${outcome === 'passed' ? 'good' : 'bad'}">${outcome}</span> ${episode.suite}/${episode.taskId},
          ${commands.length} commands, ${passed} of ${verdict.checks.length} checks
        </summary>
        <p class="note">
          Family ${episode.family}, tier ${episode.tier}, harness ${episode.harness}, ${episode.agentTokens} agent tokens, ended by
          ${episode.stopReason}.${
            verdict.checks.some((check) => !check.passed)
              ? ` Failed checks: ${verdict.checks
                  .filter((check) => !check.passed)
                  .map(({ name }) => name)
                  .join(', ')}.`
              : ''
          }
        </p>
        ${episode.turns.map((turn) =>
          turn.commands.length === 0
            ? html`<pre>${cut(turn.reply)}</pre>`
            : turn.commands.map(
                (command) =>
                  html`<pre><span class="prompt">$ </span>${cut(command.command)}${command.stdout || command.stderr ? `\n${cut([command.stdout, command.stderr].filter(Boolean).join('\n').trimEnd())}` : ''}${command.exitCode !== 0 ? html` <span class="status">${command.timedOut ? 'timed out' : `exit code ${command.exitCode}`}</span>` : ''}</pre>`,
              ),
        )}
      </details>`;
    })}`;
}

function configuration({ input, versions }: ReportData): Html {
  const facts: [string, string][] = [
    ['workflow', input.workflowId],
    ['run', input.runKey],
    ['calibration', input.calibration.uri],
    ...Object.entries(versions),
  ];
  return html`${table(
      '',
      ['what', 'value'],
      facts.map(([name, value]) => [name, html`<code>${value}</code>`]),
    )}
    <details>
      <summary>The complete configuration</summary>
      <pre>${JSON.stringify(input.config, null, 2)}</pre>
    </details>
    <p class="note">The same numbers for machines: <a href="result.json">result.json</a>.</p>`;
}
