/** The harness `terminus`: what is typed, what is read and when it ends, on a terminal of the test's own and on tmux in a container. */
import assert from 'node:assert/strict';
import { after, describe, it } from 'node:test';
import { BASE_IMAGE } from '../docker/base-image.ts';
import { DockerProvider } from '../docker/provider.ts';
import { EmbeddedProvider } from '../embedded/provider.ts';
import { SandboxDiedError, TaskError } from '../errors.ts';
import { fixture, letterCodec, noBaseImage, ScriptedSampler, testRunKey } from '../testing.ts';
import type { HarnessName, Sandbox, Task, Terminal, TerminalOptions } from '../types.ts';
import type { Conversation } from './agent.ts';
import { commandClock } from './clock.ts';
import { interact } from './interact.ts';
import type { Interaction, InteractOptions } from './interact.ts';
import { policyAgent } from './policy-agent.ts';
import { scriptedAgent } from './scripted-agent.ts';
import { limitOutput } from './terminal-output.ts';
import { completeReply } from './terminus-protocol.ts';

const task = await fixture('sort-names');
const limits = { maxTurns: 10, maxTokensPerTurn: 400, observationTokens: 10_000, commandTimeoutSec: 5 };
const says = (commands: readonly (readonly [string, number?])[], complete = false): string =>
  JSON.stringify({
    analysis: '',
    plan: '',
    commands: commands.map(([keystrokes, duration = 0]) => ({ keystrokes, duration })),
    task_complete: complete,
  });

/** Shows what is typed, and nothing else; `on` does more. */
class Paper implements Terminal {
  text = '$ ';
  typed: string[] = [];
  ended = false;
  readonly #on: (keystrokes: string, paper: Paper) => void;

  constructor(on: (keystrokes: string, paper: Paper) => void = () => undefined) {
    this.#on = on;
  }
  async send(keystrokes: string): Promise<void> {
    if (this.ended) throw new Error('no server running');
    this.typed.push(keystrokes);
    this.text += keystrokes.endsWith('\n') ? `${keystrokes}$ ` : keystrokes;
    this.#on(keystrokes, this);
  }
  screen = (): Promise<string> => Promise.resolve(`${this.text.split('\n').slice(-40).join('\n')}\n\n`);
  history = (): Promise<string> => Promise.resolve(`${this.text}\n\n`);
  alive = (): Promise<boolean> => Promise.resolve(!this.ended);
}
const at = (terminal: Terminal, opened: (options: TerminalOptions) => void = () => undefined): Sandbox =>
  ({
    kind: 'docker',
    openTerminal: (options: TerminalOptions = {}) => {
      opened(options);
      return Promise.resolve(terminal);
    },
  }) as unknown as Sandbox;
async function play(sandbox: Sandbox, replies: readonly string[], changes: Partial<InteractOptions> = {}): Promise<Interaction> {
  const conversation = scriptedAgent({ name: 'replay', replies }).open({ episodeId: 'e', harness: 'terminus' });
  return await interact({ sandbox, task, harness: 'terminus', limits, clock: commandClock(60), conversation, ...changes });
}

describe('terminus', () => {
  it('types keystrokes as they stand, and shows what is new', async () => {
    const paper = new Paper();
    const { turns, stopReason } = await play(at(paper), [says([['ls\n'], ['C-c']]), says([['pwd\n', 0.01]]), says([['']])]);
    assert.deepEqual(paper.typed, ['ls\n', 'C-c', 'pwd\n']);
    assert.deepEqual(turns[0]?.keystrokes, [
      { keystrokes: 'ls\n', durationSec: 0 },
      { keystrokes: 'C-c', durationSec: 0 },
    ]);
    assert.deepEqual(
      turns.slice(0, 3).map(({ observation }) => observation),
      ['New Terminal Output:\n$ ls\n$ C-c', 'New Terminal Output:\n$ C-cpwd\n$', 'Current Terminal Screen:\n$ ls\n$ C-cpwd\n$'],
    );
    assert.deepEqual([stopReason, turns.every(({ commands }) => commands.length === 0)], ['exit', true]);
  });

  it('begins with the instruction and the screen, as the agent’s user', async () => {
    const heard: string[] = [];
    const conversation = { ...scriptedAgent({ name: 'nop', replies: [] }).open({ episodeId: 'e', harness: 'terminus' }) };
    const users: (string | undefined)[] = [];
    const instruct = (text: string): boolean => heard.push(text) > 0;
    await play(
      at(new Paper(), ({ user }) => users.push(user)),
      [],
      { conversation: { ...conversation, instruct }, task: { ...task, agentUser: 'agent' } },
    );
    assert.deepEqual(heard, [`${task.instruction.trimEnd()}\n\nCurrent Terminal Screen:\n$`]);
    assert.deepEqual(users, ['agent']);
  });

  it('ends when completion is said twice in a row, and asks after the first time', async () => {
    const { turns, stopReason } = await play(at(new Paper()), [says([], true), says([['ls\n']]), says([], true), says([], true)]);
    assert.deepEqual(
      turns.map(({ taskComplete }) => taskComplete ?? false),
      [true, false, true, true],
    );
    assert.match(turns[0]?.observation ?? '', /once more/);
    assert.doesNotMatch(turns[1]?.observation ?? '', /once more/);
    assert.deepEqual([stopReason, turns[3]?.observation], ['exit', undefined]);
  });

  it('types nothing of a reply that it cannot read, and says why', async () => {
    const paper = new Paper();
    const { turns } = await play(at(paper), ['ls\n', says([['ls\n']]).replace('"plan"', '"plans"')]);
    assert.deepEqual(paper.typed, []);
    assert.match(turns[0]?.observation ?? '', /could not be read.*ERROR: The response holds no complete JSON object/s);
    assert.match(turns[1]?.observation ?? '', /ERROR: Required fields are missing: plan/);
    assert.deepEqual([turns[0]?.keystrokes, turns[0]?.commands], [undefined, []]);
  });

  it('puts warnings before what is new', async () => {
    const { turns } = await play(at(new Paper()), [`Well: ${says([['ls\n']])}`]);
    assert.match(
      turns[0]?.observation ?? '',
      /^Warnings about the previous response:\n- There is text before the JSON object\n\nNew Terminal Output:\n/,
    );
  });

  it('waits for a minute at most, and no longer than the agent has time', async () => {
    const clock = commandClock(0.05);
    const { turns, stopReason } = await play(at(new Paper()), [says([['sleep 300\n', 300], ['never\n']])], { clock });
    assert.deepEqual([turns[0]?.keystrokes, stopReason], [[{ keystrokes: 'sleep 300\n', durationSec: 60 }], 'agent-timeout']);
  });

  it('shows at most 10,000 bytes: the first and the last half, and whole characters', async () => {
    const paper = new Paper((_, { text }) => void (paper.text = `${text}${'é'.repeat(9000)}\nend`));
    const { turns } = await play(at(paper), [says([['cat file\n']])]);
    const shown = turns[0]?.observation ?? '';
    assert.match(shown, /^New Terminal Output:\n\$ cat file\n\$ é+\n\[\.\.\. \d+ bytes left out: .*\]\né+\nend$/);
    assert.equal(
      Buffer.byteLength(shown.replace(/\n\[.*\]\n/, '').replace('New Terminal Output:\n', '')),
      9999,
      'a half ends within a character',
    );
    assert.ok(!shown.includes('\uFFFD'));
    assert.equal(limitOutput('x'.repeat(10_000)), 'x'.repeat(10_000));
  });

  it('shows the screen where the scrollback was cleared', async () => {
    const paper = new Paper((keystrokes) => void (keystrokes === 'clear\n' && (paper.text = '$ ')));
    const { turns } = await play(at(paper), [says([['ls\n']]), says([['clear\n']])]);
    assert.equal(turns[1]?.observation, 'Current Terminal Screen:\n$');
  });

  it('ends with the shell in the terminal, also while something is typed', async () => {
    const exit = (keystrokes: string, paper: Paper): void => void (keystrokes === 'exit\n' && (paper.ended = true));
    const last = await play(at(new Paper(exit)), [says([['exit\n']])]);
    assert.deepEqual([last.stopReason, last.turns.length, last.turns[0]?.observation], ['terminal-ended', 1, undefined]);
    const typing = await play(at(new Paper(exit)), [says([['exit\n'], ['ls\n']])]);
    assert.equal(typing.stopReason, 'terminal-ended');
    const hung = new Paper(() => {
      throw new Error('tmux does not answer');
    });
    await assert.rejects(play(at(hung), [says([['ls\n']])]), /tmux does not answer/);
  });

  it('ends when the agent killed the sandbox, and fails when the machine did', async () => {
    const killed = (): Paper =>
      new Paper(() => {
        throw new SandboxDiedError('gone');
      });
    const { stopReason, turns } = await play(at(killed()), [says([['kill -9 -1\n']])], { diedByAgent: () => Promise.resolve(true) });
    assert.deepEqual([stopReason, turns[0]?.keystrokes?.[0]?.keystrokes], ['sandbox-died', 'kill -9 -1\n']);
    await assert.rejects(play(at(killed()), [says([['ls\n']])], { diedByAgent: () => Promise.resolve(false) }), SandboxDiedError);
  });

  it('is refused where there is no terminal', async () => {
    const sandbox = await new EmbeddedProvider().start(task, { runKey: testRunKey, episodeId: 'e', purpose: 'check' });
    await assert.rejects(
      play(sandbox, []),
      (error) => error instanceof TaskError && /embedded sandbox has no terminal/.test(error.message),
    );
    await sandbox.close();
  });

  it('has the tokens of every reply, of one that was cut off too, in one sequence that only grows (failure 22)', async () => {
    const replies = [says([['ls\n']]), 'not JSON', `${says([['x'.repeat(500)]])}`];
    const sampler = new ScriptedSampler(replies);
    let written = 0;
    const codec = { ...letterCodec, reply: (harness: HarnessName, text: string) => (written++, letterCodec.reply(harness, text)) };
    const agent = policyAgent({ sampler, policy: 'abc', codec, limits, contextLength: 100_000, temperature: 1, turnSeed: (turn) => turn });
    const conversation = agent.open({ episodeId: 'e', harness: 'terminus' });
    const { turns, stopReason } = await play(at(new Paper()), [], { conversation });
    const { tokens, agentTokens } = conversation.account();
    assert.deepEqual([stopReason, turns.length], ['output-length', 3]);
    assert.equal(
      agentTokens,
      letterCodec.reply('terminus', replies[0] ?? '').length +
        letterCodec.reply('terminus', replies[1] ?? '').length +
        limits.maxTokensPerTurn,
    );
    assert.equal(tokens?.turnIds.filter((turn) => turn === 2).length, limits.maxTokensPerTurn, 'the reply that was cut off');
    for (const request of sampler.requests) assert.deepEqual(tokens?.tokens.slice(0, request.tokens.length), request.tokens);
    assert.equal(written, 0, 'what was sampled is never tokenized again');
  });
});

/** Says a reply when it has seen what the one before was to show, and waits until then. `seen`: what it saw after each. */
function patient(replies: readonly (readonly [string, RegExp])[]): { readonly seen: string[]; readonly conversation: Conversation } {
  const conversation = scriptedAgent({ name: 'replay', replies: [] }).open({ episodeId: 'e', harness: 'terminus' });
  const seen: string[] = [];
  const reply = (): Promise<{ text: string }> => {
    const before = replies[seen.length - 1];
    if (before && !before[1].test(seen.at(-1) ?? '')) return Promise.resolve({ text: says([['', 0.3]]) });
    const text = replies[seen.length]?.[0] ?? completeReply;
    seen.push('');
    return Promise.resolve({ text });
  };
  const observe = (text: string): boolean => {
    seen.push(`${seen.pop()}${text}\n`);
    return true;
  };
  return { seen, conversation: { ...conversation, reply, observe } };
}

describe('terminus in a container', { skip: await noBaseImage() }, () => {
  const provider = new DockerProvider();
  after(() => provider.close());
  // As of a Dockerfile with nothing but FROM.
  const { build: _, ...environment } = task.environment;
  const base: Task = { ...task, environment: { ...environment, image: BASE_IMAGE } };
  const start = (episodeId: string): Promise<Sandbox> => provider.start(base, { runKey: testRunKey, episodeId, purpose: 'rollout' });

  it('sorts names, keeps its state, interrupts a command, sees all of a long output, and ends with its shell (failure 23)', async () => {
    const sandbox = await start('terminus');
    const big = `cat > big <<'EOF'\n${'0123456789abcdef\n'.repeat(2000)}EOF\n`;
    const { seen, conversation } = patient([
      [says([['sort names.txt > sorted.txt\n'], ['x=kept; cd /tmp\n'], ['echo $x $PWD\n']]), /^kept \/tmp$/m],
      [says([['sleep 100\n', 0.3], ['C-c', 0.3], ['echo back\n']]), /^back$/m],
      [says([['seq 1 9000\n']]), /^9000$/m],
      [says([['cd - >/dev/null; stty -echo\n', 0.3], [big], ['stty echo; wc -c < big\n']]), /^34000$/m],
      [says([['exit\n']]), /never/],
    ]);
    const { stopReason } = await play(sandbox, [], { conversation, limits: { ...limits, maxTurns: 200 } });
    assert.equal(seen.length, 5, `the agent waits in vain for ${seen.at(-1)}`);
    assert.match(seen[2] ?? '', /\n1\n2\n3\n/, 'the first lines too: the scrollback holds them');
    assert.equal(stopReason, 'terminal-ended');
    assert.equal(Buffer.from((await sandbox.readFile(`${task.workdir}/sorted.txt`)) ?? []).toString(), 'apple\nfig\npear\n');
    await sandbox.close();
  });
});
