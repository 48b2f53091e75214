/**
 * Whether steps run as recorded functions or eagerly. TERMINAL_RSI_ENGINE says it; without it functions are used wherever the addon can
 * register them. Every fall back to eager execution is announced once, by its reason: results stay the same, speed does not.
 */
import { UserError } from '../../environment/errors.ts';
import { binding } from './binding.ts';

export type EngineMode = 'graph' | 'eager';

const announced: string[] = [];
let listener = (reason: string): void => console.warn(`policy engine: eager execution, several times slower: ${reason}`);

/** Where fall backs are announced; default: a warning on the console. */
export function onFallback(listen: (reason: string) => void): void {
  listener = listen;
}
export function announceFallback(reason: string): void {
  if (announced.includes(reason)) return;
  announced.push(reason);
  listener(reason);
}
/** The reasons that were announced in this process. */
export function fallbacks(): readonly string[] {
  return announced;
}

/** @throws UserError for a value of TERMINAL_RSI_ENGINE that is neither graph nor eager */
export function engineMode(): EngineMode {
  const asked = process.env['TERMINAL_RSI_ENGINE'] ?? 'graph';
  if (asked !== 'graph' && asked !== 'eager') throw new UserError(`TERMINAL_RSI_ENGINE is '${asked}', expected graph or eager`);
  if (asked === 'graph' && binding().addFunction === undefined) {
    announceFallback('the TensorFlow addon was not compiled by our setup and cannot register functions; run npm run setup');
    return 'eager';
  }
  return asked;
}
