/** The report's training section: what RSR kept and why it dropped the rest, and how SFT, critic warm-up and PPO went. */
import type { PpoMetrics } from '../policy/types.ts';
import type { StageResult } from '../workflows/contract.ts';
import { lineChart, type Series } from './charts.ts';
import { html, type Html } from './html.ts';
import { table } from './report-table.ts';

export function trainingSection(stages: readonly StageResult[]): Html {
  const parts = [rewriting(stages), fineTuning(stages), warmUp(stages), ppo(stages)].filter((part) => part !== undefined);
  return parts.length > 0 ? html`${parts}` : html`<p>No stage has trained.</p>`;
}

function rewriting(stages: readonly StageResult[]): Html | undefined {
  const rsr = stages.flatMap((stage) => (stage.rewrite ? [{ name: stage.name, ...stage.rewrite }] : []));
  if (rsr.length === 0) return undefined;
  const rules = [...new Set(rsr.flatMap((stage) => Object.keys(stage.dropped)))].sort();
  const rows = rsr.map((stage) => [
    stage.name,
    stage.successes,
    ...rules.map((rule) => stage.dropped[rule] ?? 0),
    stage.kept,
    stage.executions,
  ]);
  return html`<h3>RSR: rewriting</h3>
    <p class="note">
      Successful episodes become minimised runbooks, are screened, and run again in a fresh environment; what is kept is trained on.
    </p>
    ${table('Runbooks; “dropped” columns are the screens and rules by name', ['stage', 'successes', ...rules.map((rule) => `dropped: ${rule}`), 'kept', 'fresh executions'], rows)}`;
}

function fineTuning(stages: readonly StageResult[]): Html | undefined {
  const tuned = stages.flatMap((stage) => (stage.fineTune ? [{ name: stage.name, losses: stage.fineTune.epochLosses }] : []));
  if (tuned.length === 0) return undefined;
  return html`<h3>RSR: fine-tuning of the actor</h3>
    <div class="charts">
      ${small(
        'Cross-entropy per agent token, by epoch',
        'epoch',
        tuned.map(({ name, losses }) => ({ name, values: losses })),
      )}
    </div>`;
}

function warmUp(stages: readonly StageResult[]): Html | undefined {
  const warmed = stages.flatMap((stage) => (stage.warmUp ? [{ name: stage.name, epochs: stage.warmUp.epochs }] : []));
  if (warmed.length === 0) return undefined;
  return html`<h3>RPR: critic warm-up (four value-only epochs)</h3>
    <div class="charts">
      ${small(
        'Value loss, by epoch',
        'epoch',
        warmed.map(({ name, epochs }) => ({ name, values: epochs.map(({ valueLoss }) => valueLoss) })),
      )}
      ${small(
        'Explained variance of the returns, by epoch (gaps: constant returns)',
        'epoch',
        warmed.map(({ name, epochs }) => ({ name, values: epochs.map(({ explainedVariance }) => explainedVariance) })),
      )}
    </div>`;
}

const PPO_CURVES: readonly [string, (metrics: PpoMetrics) => number | undefined][] = [
  ['Mean reward of the batch (FDR and SPR have different scales)', (metrics) => metrics.meanReward],
  ['Strict success of the batch, percent', (metrics) => 100 * metrics.successRate],
  ['KL to the behaviour policy, nats per token', (metrics) => metrics.kl],
  ["KL to the stage's start, nats per token", (metrics) => metrics.klToStart],
  ['Entropy, nats per token', (metrics) => metrics.entropy],
  ['Share of tokens clipped', (metrics) => metrics.clipFraction],
  ['Gradient norm of the actor, before clipping', (metrics) => metrics.gradientNorm],
  ['Agent tokens per turn', (metrics) => metrics.tokensPerTurn],
  ['Value loss', (metrics) => metrics.valueLoss],
  ['Explained variance of the returns', (metrics) => metrics.explainedVariance],
];

function ppo(stages: readonly StageResult[]): Html | undefined {
  const trained = stages.flatMap((stage) =>
    stage.ppo && stage.ppo.length > 0 ? [{ name: stage.name, reward: stage.reward, ppo: stage.ppo }] : [],
  );
  if (trained.length === 0) return undefined;
  const stops = trained.flatMap(({ name, ppo: iterations }) =>
    iterations.flatMap(({ stop }, i) =>
      stop ? [`${name} stopped in iteration ${i + 1}: ${stop.rule} was ${stop.value.toPrecision(4)}, limit ${stop.limit}.`] : [],
    ),
  );
  return html`<h3>RPR: joint PPO, by iteration</h3>
    ${stops.length > 0 ? html`<p>${stops.join(' ')}</p>` : html`<p class="note">No stop rule fired.</p>`}
    <div class="charts">
      ${PPO_CURVES.map(([title, pick]) =>
        small(
          title,
          'iteration',
          trained.map(({ name, reward, ppo: iterations }) => ({
            name: reward ? `${name} (${reward.toUpperCase()})` : name,
            values: iterations.map(pick),
          })),
        ),
      )}
    </div>`;
}

/** A small plot over 1, 2, 3, …; one line per stage. */
function small(title: string, xName: string, series: readonly Series[]): Html {
  const length = Math.max(...series.map(({ values }) => values.length));
  return lineChart({ title, xName, x: Array.from({ length }, (_, i) => String(i + 1)), series, width: 480, height: 250 });
}
