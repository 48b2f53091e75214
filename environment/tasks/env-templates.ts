/** Values of `[environment].env`, `[verifier].env` and `[solution].env` that come from the machine which runs the task. */
import { UserError } from '../errors.ts';

/** As in Harbor, the whole value is a template or none of it is. */
const template = /^\$\{([^}:]+)(?::-([^\n]*))?\}$/;

/**
 * Replaces `${VAR}` and `${VAR:-default}`; other values stay as they are.
 * @param place what the variables belong to, for the message: a task's id and table
 * @param host default: this process's own environment
 * @throws UserError naming place, key and the variable that is not set
 */
export function resolveEnv(
  env: Readonly<Record<string, string>>,
  place: string,
  host: Readonly<Record<string, string | undefined>> = process.env,
): Record<string, string> {
  return Object.fromEntries(
    Object.entries(env).map(([key, value]) => {
      const found = template.exec(value);
      if (!found) return [key, value];
      const [, name = '', fallback] = found;
      const resolved = host[name] ?? fallback;
      if (resolved === undefined)
        throw new UserError(
          `${place}: env.${key} = ${JSON.stringify(value)}: ${name} is not set on this machine; expected it in the environment`,
        );
      return [key, resolved];
    }),
  );
}
