/**
 * Our engine as one of the benchmark's processes, with the protocol of peer.py: training through LocalTrainer, as the stage loops do, and
 * sampling through PolicySampler, as the trainer's HTTP does. TERMINAL_RSI_ENGINE says whether as graphs or eagerly.
 */
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { loadModel } from '../../../policy/checkpoint.ts';
import { fallbacks } from '../../../policy/engine/mode.ts';
import { PolicySampler } from '../../../policy/sampler.ts';
import { device } from '../../../policy/tensorflow.ts';
import { LocalTrainer } from '../../../policy/trainer/local.ts';
import type { Answer, MeasuredRound } from './peers.ts';
import { PROMPT_TOKENS } from './workloads.ts';
import type { Spec } from './workloads.ts';

interface Prepared {
  readonly answer: Omit<Answer, 'prepareSeconds' | 'versions'>;
  readonly round: () => Promise<MeasuredRound>;
}

async function training({ model, rows, length, tokens, adam, checkedSteps, steps }: Spec): Promise<Prepared> {
  const trainer = new LocalTrainer();
  const handle = await trainer.load({ role: 'actor', directory: model });
  const mask = tokens.map((_, i) => (i % length === 0 ? 0 : 1));
  const denominator = rows * (length - 1);
  const step = async (): Promise<{ loss: number; gradientNorm: number }> => {
    const { loss } = await trainer.forwardBackward(handle, { kind: 'sft', denominator }, { rows, length, tokens, mask });
    const { gradientNorm } = await trainer.optimStep(handle, adam);
    return { loss, gradientNorm };
  };
  const checked = [];
  for (let i = 0; i < checkedSteps; i++) checked.push(await step());
  return {
    answer: { losses: checked.map(({ loss }) => loss), gradientNorms: checked.map(({ gradientNorm }) => gradientNorm) },
    round: async () => {
      const seconds: number[] = [];
      for (let i = 0; i < steps; i++) {
        const started = performance.now();
        await step();
        seconds.push((performance.now() - started) / 1000);
      }
      return { seconds };
    },
  };
}

async function sampling({ model, rows, length, tokens, seed }: Spec): Promise<Prepared> {
  const { config, params } = loadModel(model, 'actor');
  // No token ends a turn, so that every request gives the same number of tokens.
  const sampler = new PolicySampler({ config: { ...config, eos_token_id: [] }, params }, { slots: rows });
  let request = 0;
  const all = async (): Promise<{ tokens: number[][]; logprobs: number[][]; seconds: number }> => {
    const started = performance.now();
    const results = await Promise.all(
      Array.from({ length: rows }, async (_, row) => {
        const sessionId = `session-${request++}`;
        const prompt = tokens.slice(row * PROMPT_TOKENS, (row + 1) * PROMPT_TOKENS);
        const maxTokens = length - PROMPT_TOKENS;
        const result = await sampler.sample({
          sessionId,
          policy: 'bench',
          tokens: prompt,
          seed: seed + request,
          maxTokens,
          temperature: 1,
        });
        sampler.endSession(sessionId);
        return result;
      }),
    );
    const seconds = (performance.now() - started) / 1000;
    return { tokens: results.map((result) => result.tokens), logprobs: results.map((result) => result.logprobs), seconds };
  };
  // Traces and compiles what the rounds will use.
  const { tokens: drawn, logprobs } = await all();
  return { answer: { tokens: drawn, logprobs }, round: async () => ({ seconds: [(await all()).seconds] }) };
}

function reply(answer: Answer | MeasuredRound): void {
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}

const spec = JSON.parse(readFileSync(process.argv[2] as string, 'utf8')) as Spec;
const started = performance.now();
const { answer, round } = spec.workload === 'training' ? await training(spec) : await sampling(spec);
const [fallback] = fallbacks();
const { kind, name, tensorflow, threads } = device();
reply({
  ...answer,
  prepareSeconds: (performance.now() - started) / 1000,
  versions: { node: process.versions.node, kind, name, tensorflow, threads },
  ...(fallback !== undefined && { variant: `eager: ${fallback}` }),
});
for await (const _ of createInterface({ input: process.stdin })) reply(await round());
process.exit(0);
