/** The text an agent reads after its commands ran. Pre-training data must be written with this very function. */
import type { CommandRecord } from '../types.ts';

/**
 * Per command stdout, then stderr, then `[timed out]` or `[exit N]` where N is not 0; `[ok]` where that is empty. Several
 * commands of one reply follow each other, separated by newlines.
 */
export function observationText(commands: readonly Pick<CommandRecord, 'stdout' | 'stderr' | 'exitCode' | 'timedOut'>[]): string {
  const texts = commands.map(({ stdout, stderr, exitCode, timedOut }) => {
    const status = timedOut ? '[timed out]' : exitCode === 0 ? '' : `[exit ${exitCode}]`;
    return [stdout, stderr, status]
      .map((part) => part.replace(/\n+$/, ''))
      .filter((part) => part !== '')
      .join('\n');
  });
  return texts.map((text) => (text === '' ? '[ok]' : text)).join('\n') || '[ok]';
}
