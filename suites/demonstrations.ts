/**
 * Noisy demonstrations for pre-training the base policy: what a beginner would type, who can do everything sometimes and
 * nothing reliably. The commands are plausible, not always right; whoever trains on them runs them in a sandbox to get
 * the observations. Held-out families and the instances of all suites and of `train` never occur.
 */
import { Random, deriveSeed } from '../method/seeds.ts';
import type { HarnessName, Tier } from '../environment/types.ts';
import type { Step, TaskInstance } from './family.ts';
import { TRAINED } from './families/index.ts';
import { demonstrationInstance } from './splits.ts';

/** Probabilities of each kind of slip. */
export interface Noise {
  /** Per step: types a wrong variant. */
  readonly wrong: number;
  /** After a wrong variant: notices, and does the step right. */
  readonly repair: number;
  /** Per step: leaves it out. */
  readonly skip: number;
  /** Per step after the first: exits instead. */
  readonly quit: number;
  /** Per look that a step needs: acts without it, which goes wrong. */
  readonly blind: number;
  /** Per episode: starts with a look that nothing needs. */
  readonly idle: number;
}

export const NO_NOISE: Noise = { wrong: 0, repair: 0, skip: 0, quit: 0, blind: 0, idle: 0 };

/** Tuned for a strict success of about 50, 35, 20 and 10 % over the tiers (measured in demonstrations.test.ts). */
export const DEFAULT_NOISE: Readonly<Record<Tier, Noise>> = {
  easy: { wrong: 0.52, repair: 0.08, skip: 0.04, quit: 0, blind: 0, idle: 0.1 },
  medium: { wrong: 0.43, repair: 0.1, skip: 0.04, quit: 0.06, blind: 0.3, idle: 0.06 },
  hard: { wrong: 0.48, repair: 0.1, skip: 0.04, quit: 0.06, blind: 0.25, idle: 0.04 },
  extreme: { wrong: 0.36, repair: 0.1, skip: 0.03, quit: 0.05, blind: 0.25, idle: 0.02 },
};

export interface Demonstration {
  /** All commands in order; the last is `exit`. */
  readonly commands: readonly string[];
  /** The same commands by turn: one each in harness `shell`; in `script` a turn ends only where something has to be read first. */
  readonly turns: readonly (readonly string[])[];
}

export function demonstration(
  instance: Pick<TaskInstance, 'steps'>,
  random: Random,
  noise: Noise,
  harness: HarnessName = 'shell',
): Demonstration {
  const turns: string[][] = [[]];
  /** `read`: what follows depends on this command's output. */
  const type = (command: string, read = false): void => {
    turns.at(-1)?.push(command);
    if (read || harness === 'shell') turns.push([]);
  };
  if (random.chance(noise.idle)) type('ls');
  for (const [index, step] of instance.steps.entries()) {
    if (index > 0 && random.chance(noise.quit)) break;
    if (!random.chance(noise.skip)) attempt(step, random, noise, type);
  }
  type('exit');
  const filled = turns.filter((turn) => turn.length > 0);
  return { commands: filled.flat(), turns: filled };
}

function attempt(step: Step, random: Random, noise: Noise, type: (command: string, read?: boolean) => void): void {
  let blind = false;
  for (const look of step.looks ?? []) {
    blind = random.chance(noise.blind);
    if (blind) break;
    type(look, true);
  }
  if (step.wrong.length > 0 && (blind || random.chance(noise.wrong))) {
    type(random.pick(step.wrong));
    if (blind || !random.chance(noise.repair)) return;
  }
  type(random.pick(step.right));
}

export interface DemonstrationItem extends Demonstration {
  readonly family: string;
  readonly tier: Tier;
  readonly instance: TaskInstance;
  readonly harness: HarnessName;
}

/** Share of demonstrations in the complementary harness. */
const SCRIPT_SHARE = 0.15;

/** An endless stream over the trained families, each equally often within every pass; the same for the same seed and noise. */
export function* demonstrationStream(
  seed: number,
  noise: Readonly<Record<Tier, Noise>> = DEFAULT_NOISE,
): Generator<DemonstrationItem, never, undefined> {
  for (let pass = 0; ; pass++) {
    const order = new Random(deriveSeed('demonstration-order', seed, pass)).shuffle(TRAINED);
    for (const family of order) {
      const instance = demonstrationInstance(family, seed, pass);
      const random = new Random(deriveSeed('demonstration-noise', seed, family.name, pass));
      const harness: HarnessName = random.chance(SCRIPT_SHARE) ? 'script' : 'shell';
      yield { family: family.name, tier: family.tier, instance, harness, ...demonstration(instance, random, noise[family.tier], harness) };
    }
  }
}
