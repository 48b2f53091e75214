/**
 * Turn-Boundary Skip-Observation GAE (the paper's TB-GAE) and, for comparison arms, ordinary token GAE with the same
 * treatment of observations. Both walk over the agent's tokens only, from the last to the first.
 *
 * Invariants, each a test in tb-gae.test.ts:
 *  1. One token per turn: tbGae equals tokenGae.
 *  2. gamma = lambda = 1: the advantage is the Monte-Carlo return minus the baseline.
 *  3. Observation tokens, however many and whatever value stands there, change nothing.
 *  4. At the first token of each turn tbGae equals turn-level GAE with that token's value as the turn's value.
 */

export interface GaeInput {
  /** [T] reward per token; must be 0 where turnIds is -1. */
  readonly rewards: ArrayLike<number>;
  /** [T] the critic's value per token; ignored (may be anything) where turnIds is -1. */
  readonly values: ArrayLike<number>;
  /** [T] turn number at agent tokens, -1 elsewhere. Never decreasing over the agent tokens; gaps are allowed. */
  readonly turnIds: ArrayLike<number>;
  readonly gamma: number;
  readonly lambda: number;
  /** Value after the last agent token of an episode that was cut off; leave out (0) where the episode ended. */
  readonly bootstrapValue?: number;
}

export interface GaeResult {
  /** [T] advantages before whitening; exactly 0 where turnIds is -1. */
  readonly advantages: Float64Array;
  /** [T] advantage + value, the critic's target; exactly 0 where turnIds is -1. */
  readonly returns: Float64Array;
}

/**
 * docs/method.md, TB-GAE: discount and trace decay apply at the last token of a turn only; inside a turn both are 1. For agent token j
 * with next agent token j+1: δ_j = r_j + γ_j V_{j+1} − V_j, A_j = δ_j + γ_j λ_j A_{j+1}, R_j = A_j + V_j.
 *
 * @throws RangeError for arrays of different length, wrong turn ids, a reward outside the agent's tokens, or numbers that are not finite.
 */
export function tbGae(input: GaeInput): GaeResult {
  return backward(input, (endsTurn) => endsTurn);
}

/** Ordinary GAE over the agent's tokens: discount and decay at every token; observations skipped as in tbGae. Same errors. */
export function tokenGae(input: GaeInput): GaeResult {
  return backward(input, () => true);
}

function backward(input: GaeInput, decays: (endsTurn: boolean) => boolean): GaeResult {
  validate(input);
  const { rewards, values, turnIds } = input;
  const advantages = new Float64Array(turnIds.length);
  const returns = new Float64Array(turnIds.length);
  let nextValue = input.bootstrapValue ?? 0;
  let nextAdvantage = 0;
  let nextTurn: number | undefined;
  for (let j = turnIds.length - 1; j >= 0; j--) {
    const turn = turnIds[j] as number;
    if (turn === -1) continue;
    const decay = decays(turn !== nextTurn);
    const gamma = decay ? input.gamma : 1;
    const lambda = decay ? input.lambda : 1;
    const value = values[j] as number;
    const delta = (rewards[j] as number) + gamma * nextValue - value;
    const advantage = delta + gamma * lambda * nextAdvantage;
    advantages[j] = advantage;
    returns[j] = advantage + value;
    nextValue = value;
    nextAdvantage = advantage;
    nextTurn = turn;
  }
  return { advantages, returns };
}

function validate(input: GaeInput): void {
  const { rewards, values, turnIds, gamma, lambda, bootstrapValue } = input;
  if (rewards.length !== turnIds.length || values.length !== turnIds.length) {
    throw new RangeError(
      `GAE: rewards (${rewards.length}), values (${values.length}) and turnIds (${turnIds.length}) must have the same length`,
    );
  }
  for (const [name, value] of Object.entries({ gamma, lambda })) {
    if (!(value >= 0 && value <= 1)) throw new RangeError(`GAE: ${name} = ${value}, expected a number in [0, 1]`);
  }
  if (bootstrapValue !== undefined && !Number.isFinite(bootstrapValue)) {
    throw new RangeError(`GAE: bootstrapValue = ${bootstrapValue}, expected a finite number`);
  }
  let turn = -1;
  for (let j = 0; j < turnIds.length; j++) {
    const id = turnIds[j] as number;
    if (!Number.isInteger(id) || id < -1) {
      throw new RangeError(`GAE: turnIds[${j}] = ${id}, expected an integer >= 0 at agent tokens or -1 elsewhere`);
    }
    if (id === -1) {
      // A reward here would be dropped without a trace; somebody has put the episode's reward on an observation.
      if (rewards[j] !== 0) throw new RangeError(`GAE: rewards[${j}] = ${rewards[j]} at a token that is not the agent's, expected 0`);
      continue;
    }
    if (id < turn) throw new RangeError(`GAE: turnIds[${j}] = ${id} after turn ${turn}, expected turns in order`);
    turn = id;
    if (!Number.isFinite(rewards[j])) throw new RangeError(`GAE: rewards[${j}] = ${rewards[j]}, expected a finite number`);
    if (!Number.isFinite(values[j])) throw new RangeError(`GAE: values[${j}] = ${values[j]}, expected a finite number`);
  }
}

/** [T] zeros with `reward` on the last agent token, where TB-GAE puts it (docs/method.md). @throws RangeError without an agent token. */
export function terminalRewards(turnIds: ArrayLike<number>, reward: number): Float64Array {
  const rewards = new Float64Array(turnIds.length);
  for (let j = turnIds.length - 1; j >= 0; j--) {
    if (turnIds[j] !== -1) {
      rewards[j] = reward;
      return rewards;
    }
  }
  throw new RangeError(`GAE: no agent token among ${turnIds.length} tokens to put the reward on`);
}
