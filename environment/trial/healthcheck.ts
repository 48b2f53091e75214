/**
 * Whether an environment is ready for its agent, by the task's healthcheck with the meaning that Docker's HEALTHCHECK has: the first
 * success ends it; failures within the start period do not count; after it `retries` failures in a row are the end.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { InfrastructureError } from '../errors.ts';
import type { Healthcheck, Sandbox } from '../types.ts';

/** @param place the task, for the message. @throws InfrastructureError of type HealthcheckError */
export async function awaitHealthy(sandbox: Sandbox, check: Healthcheck, place: string, signal?: AbortSignal): Promise<void> {
  const { command, intervalSec, timeoutSec, startPeriodSec, startIntervalSec, retries } = check;
  const cancel = signal ? { signal } : {};
  const startEnds = performance.now() + startPeriodSec * 1000;
  let failures = 0;
  for (;;) {
    const { exitCode, timedOut, stdout, stderr } = await sandbox.exec(command, { timeoutSec, ...cancel });
    if (exitCode === 0 && !timedOut) return;
    const starting = performance.now() < startEnds;
    if (!starting && ++failures >= retries) {
      const how = timedOut ? `takes longer than ${timeoutSec} s` : `exits with ${exitCode}`;
      const said = `${stdout}${stderr}`.trim().slice(-300);
      throw new InfrastructureError(`${place}: the healthcheck ${JSON.stringify(command)} ${how}, ${failures} times in a row: ${said}`, {
        type: 'HealthcheckError',
      });
    }
    await sleep(1000 * (starting ? startIntervalSec : intervalSec), undefined, cancel);
  }
}
