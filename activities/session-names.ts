/** Names of an episode's sessions at the sampler, which neither another run nor an earlier attempt of this one uses. */
import type { Sampler } from '../environment/types.ts';

/** `answered`: called after each turn, for the progress of long episodes. */
export function ownSessions(sampler: Sampler, prefix: string, answered: () => void = () => undefined): Sampler {
  return {
    async sample(request, signal) {
      const result = await sampler.sample({ ...request, sessionId: `${prefix}/${request.sessionId}` }, signal);
      answered();
      return result;
    },
    endSession: (sessionId) => sampler.endSession(`${prefix}/${sessionId}`),
  };
}
