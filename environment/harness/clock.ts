/** The agent's time over a whole instruction (the task's `[agent] timeout_sec`), and what uses it up. */
export interface AgentClock {
  readonly leftSec: number;
  /** Whether time runs while the agent thinks. */
  readonly wall: boolean;
  /** A command took this long by the sandbox's own clock. */
  spend(seconds: number): void;
}

/**
 * Only the agent's commands in the sandbox use time up. What it waits for the sampler is not the agent's doing but the machine's load:
 * counted, it would make an outcome that is trained on depend on the episodes beside it. Waiting is bounded where it happens
 * (policy/trainer/client.ts).
 */
export function commandClock(limitSec: number): AgentClock {
  let leftSec = limitSec;
  return {
    wall: false,
    get leftSec() {
      return leftSec;
    },
    spend: (seconds) => {
      leftSec -= seconds;
    },
  };
}

/** Harbor's: real time from now on, thinking included. */
export function wallClock(limitSec: number): AgentClock {
  const end = performance.now() + limitSec * 1000;
  return {
    wall: true,
    get leftSec() {
      return (end - performance.now()) / 1000;
    },
    spend: () => undefined,
  };
}
