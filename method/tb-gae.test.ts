import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { Random } from './seeds.ts';
import { tbGae, terminalRewards, tokenGae } from './tb-gae.ts';

interface Vector {
  name: string;
  inputs: {
    rewards: number[];
    values: number[];
    mask?: number[];
    turn_ids?: number[];
    turn_end?: number[];
    gamma: number;
    lam: number;
    high_level_gamma?: number;
    bootstrap_value?: number;
  };
  expected: { adv_at_mask?: number[]; ret_at_mask?: number[]; adv?: number[]; returns?: number[]; areal_turn_level_adv_by_turn?: number[] };
}
const file = JSON.parse(readFileSync(new URL('../tests/fixtures/rl-vectors.json', import.meta.url), 'utf8')) as { vectors: Vector[] };
const starting = (prefix: string): Vector[] => {
  const found = file.vectors.filter((vector) => vector.name.startsWith(prefix));
  assert.ok(found.length > 0, `no vector is named ${prefix}*`);
  return found;
};
const vector = (name: string): Vector => {
  const found = file.vectors.find((candidate) => candidate.name === name);
  assert.ok(found, `no vector is named ${name}`);
  return found;
};

const close = (actual: ArrayLike<number>, expected: readonly number[], tolerance = 1e-9): void => {
  assert.equal(actual.length, expected.length);
  expected.forEach((value, i) => assert.ok(Math.abs((actual[i] as number) - value) <= tolerance, `[${i}] ${actual[i]}, expected ${value}`));
};
const atAgent = (values: ArrayLike<number>, turnIds: readonly number[]): number[] => Array.from(values).filter((_, j) => turnIds[j] !== -1);
/** One long turn: what token GAE needs of turn ids is only where the agent speaks. */
const oneTurn = (mask: readonly number[]): number[] => mask.map((kept) => (kept ? 0 : -1));
const turnsFromEnds = (mask: readonly number[], ends: readonly number[]): number[] => {
  let turn = 0;
  return mask.map((kept, j) => (kept ? (ends[j] ? turn++ : turn) : -1));
};

for (const { name, inputs, expected } of starting('tb_gae_')) {
  test(`TB-GAE equals vector ${name}`, () => {
    const turnIds = inputs.turn_ids ?? [];
    const { rewards, values, gamma, lam: lambda, bootstrap_value: bootstrapValue } = inputs;
    const result = tbGae({ rewards, values, turnIds, gamma, lambda, ...(bootstrapValue === undefined ? {} : { bootstrapValue }) });
    close(atAgent(result.advantages, turnIds), expected.adv_at_mask ?? []);
    if (expected.ret_at_mask) close(atAgent(result.returns, turnIds), expected.ret_at_mask);
    turnIds.forEach((turn, j) => turn === -1 && assert.deepEqual([result.advantages[j], result.returns[j]], [0, 0]));
    if (expected.areal_turn_level_adv_by_turn) {
      const firsts = turnIds.flatMap((turn, j) => (turn !== -1 && turnIds.indexOf(turn) === j ? [result.advantages[j] as number] : []));
      close(firsts, expected.areal_turn_level_adv_by_turn, 1e-6);
    }
  });
}

const tokenVectors = [
  ...starting('token_gae_skip_obs'),
  ...starting('nemo_gae'),
  ...starting('gae_all_agree'),
  ...starting('verl_multi_turn_gae'),
];
for (const { name, inputs, expected } of tokenVectors) {
  test(`token GAE equals vector ${name}`, () => {
    const turnIds = oneTurn(inputs.mask ?? []);
    const result = tokenGae({ rewards: inputs.rewards, values: inputs.values, turnIds, gamma: inputs.gamma, lambda: inputs.lam });
    close(atAgent(result.advantages, turnIds), expected.adv_at_mask ?? expected.adv ?? []);
    const returns = expected.ret_at_mask ?? expected.returns;
    if (returns) close(atAgent(result.returns, turnIds), returns);
  });
}

test('VAGEN: at lambda = 1 bi-level GAE with turn discount h is TB-GAE with gamma = h', () => {
  for (const h of ['1.0', '0.99', '0.9']) {
    const { inputs, expected } = vector(`vagen_bi_level_g1.0_l1.0_h${h}`);
    const turnIds = turnsFromEnds(inputs.mask ?? [], inputs.turn_end ?? []);
    const result = tbGae({ ...inputs, turnIds, gamma: Number(h), lambda: 1 });
    close(atAgent(result.advantages, turnIds), expected.adv_at_mask ?? []);
    close(atAgent(result.returns, turnIds), expected.ret_at_mask ?? []);
  }
});

test('AReaL: the first tokens of truncated turns carry the literals of its test', () => {
  const { inputs, expected } = vector('areal_turn_gae_2');
  const turnIds = inputs.turn_ids ?? [];
  const { advantages } = tbGae({ ...inputs, turnIds, lambda: inputs.lam, bootstrapValue: inputs.bootstrap_value ?? 0 });
  assert.equal(advantages[0], expected.adv?.[0]);
  assert.equal(advantages[3], expected.adv?.[3]);
});

/** A random episode: turns of 1 to 4 agent tokens with 0 to 3 observation tokens before each. */
function randomEpisode(random: Random): { rewards: number[]; values: number[]; turnIds: number[] } {
  const episode = { rewards: [] as number[], values: [] as number[], turnIds: [] as number[] };
  const turns = 1 + random.int(5);
  for (let turn = 0; turn < turns; turn++) {
    for (let k = random.int(4); k > 0; k--) push(episode, 0, random.next() * 100, -1);
    for (let k = 1 + random.int(4); k > 0; k--) push(episode, random.chance(0.3) ? random.next() - 0.5 : 0, random.next(), turn);
  }
  return episode;
}
function push(episode: { rewards: number[]; values: number[]; turnIds: number[] }, reward: number, value: number, turn: number): void {
  episode.rewards.push(reward);
  episode.values.push(value);
  episode.turnIds.push(turn);
}

test('inserting observation tokens anywhere changes no agent token, bit for bit', () => {
  const random = new Random(11);
  for (let trial = 0; trial < 50; trial++) {
    const episode = randomEpisode(random);
    const longer = { rewards: [] as number[], values: [] as number[], turnIds: [] as number[] };
    for (let j = 0; j < episode.turnIds.length; j++) {
      for (let k = random.int(3); k > 0; k--) push(longer, 0, random.chance(0.2) ? Number.NaN : 1e6 * random.next(), -1);
      push(longer, episode.rewards[j] as number, episode.values[j] as number, episode.turnIds[j] as number);
    }
    const settings = { gamma: random.next(), lambda: random.next(), bootstrapValue: random.next() };
    for (const estimate of [tbGae, tokenGae]) {
      const short = estimate({ ...episode, ...settings });
      const long = estimate({ ...longer, ...settings });
      assert.deepEqual(atAgent(long.advantages, longer.turnIds), atAgent(short.advantages, episode.turnIds));
      assert.deepEqual(atAgent(long.returns, longer.turnIds), atAgent(short.returns, episode.turnIds));
    }
  }
});

test('gamma = lambda = 1 gives the Monte-Carlo return minus the baseline', () => {
  const random = new Random(12);
  for (let trial = 0; trial < 50; trial++) {
    const { rewards, values, turnIds } = randomEpisode(random);
    const { advantages, returns } = tbGae({ rewards, values, turnIds, gamma: 1, lambda: 1 });
    turnIds.forEach((turn, j) => {
      if (turn === -1) return;
      const monteCarlo = rewards.slice(j).reduce((a, b) => a + b, 0);
      assert.ok(Math.abs((returns[j] as number) - monteCarlo) < 1e-9);
      assert.ok(Math.abs((advantages[j] as number) - (monteCarlo - (values[j] as number))) < 1e-9);
    });
  }
});

test('with one token per turn TB-GAE is token GAE; with longer turns it is not', () => {
  const random = new Random(13);
  for (let trial = 0; trial < 50; trial++) {
    const episode = randomEpisode(random);
    let turn = 0;
    const turnIds = episode.turnIds.map((id) => (id === -1 ? -1 : turn++));
    const input = { ...episode, turnIds, gamma: random.next(), lambda: random.next() };
    assert.deepEqual(tbGae(input), tokenGae(input));
  }
  const long = { rewards: [0, 1], values: [0.5, 0.5], turnIds: [0, 0], gamma: 0.9, lambda: 0.9 };
  assert.notDeepEqual(tbGae(long).advantages, tokenGae(long).advantages);
});

test('at the first token of each turn TB-GAE is turn-level GAE, written here independently', () => {
  const random = new Random(14);
  for (let trial = 0; trial < 50; trial++) {
    const { rewards, values, turnIds } = randomEpisode(random);
    const [gamma, lambda, bootstrapValue] = [random.next(), random.next(), random.next()];
    const { advantages } = tbGae({ rewards, values, turnIds, gamma, lambda, bootstrapValue });
    const turns = [...new Set(turnIds.filter((turn) => turn !== -1))];
    let [nextValue, nextAdvantage] = [bootstrapValue, 0];
    for (const turn of turns.reverse()) {
      const first = turnIds.indexOf(turn);
      const reward = rewards.filter((_, j) => turnIds[j] === turn).reduce((a, b) => a + b, 0);
      nextAdvantage = reward + gamma * nextValue - (values[first] as number) + gamma * lambda * nextAdvantage;
      nextValue = values[first] as number;
      assert.ok(Math.abs((advantages[first] as number) - nextAdvantage) < 1e-9);
    }
  }
});

test('turn numbers may have gaps; only their change matters', () => {
  const base = { rewards: [0, 0, 1], values: [0.1, 0.2, 0.3], gamma: 0.5, lambda: 0.5 };
  assert.deepEqual(tbGae({ ...base, turnIds: [0, 0, 1] }), tbGae({ ...base, turnIds: [3, 3, 9] }));
});

test('wrong input is refused with place, value and expectation', () => {
  const good = { rewards: [0, 0, 1], values: [0, 0, 0], turnIds: [0, -1, 1], gamma: 1, lambda: 1 };
  assert.throws(() => tbGae({ ...good, values: [0] }), /values \(1\) and turnIds \(3\)/);
  assert.throws(() => tbGae({ ...good, turnIds: [1, -1, 0] }), /turnIds\[2\] = 0 after turn 1/);
  assert.throws(() => tbGae({ ...good, turnIds: [0.5, -1, 1] }), /turnIds\[0\] = 0.5, expected an integer/);
  assert.throws(() => tbGae({ ...good, turnIds: [0, -2, 1] }), /turnIds\[1\] = -2/);
  assert.throws(() => tbGae({ ...good, rewards: [0, 0.5, 1] }), /rewards\[1\] = 0.5 at a token that is not the agent's/);
  assert.throws(() => tbGae({ ...good, values: [Number.NaN, 0, 0] }), /values\[0\] = NaN/);
  assert.throws(() => tbGae({ ...good, rewards: [0, 0, Infinity] }), /rewards\[2\] = Infinity/);
  assert.throws(() => tbGae({ ...good, gamma: 1.1 }), /gamma = 1.1, expected a number in \[0, 1\]/);
  assert.throws(() => tbGae({ ...good, bootstrapValue: Number.NaN }), /bootstrapValue = NaN/);
});

test('the terminal reward sits on the last agent token, not on the last token', () => {
  assert.deepEqual([...terminalRewards([-1, 0, 0, -1], 2.5)], [0, 0, 2.5, 0]);
  assert.throws(() => terminalRewards([-1, -1], 1), /no agent token among 2 tokens/);
});
