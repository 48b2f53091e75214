/** Where the trainer listens. The port is fixed over restarts, so that rollout workers find it again. */
import { UserError } from '../environment/errors.ts';

export function trainerUrl(): string {
  const url = process.env['TERMINAL_RSI_TRAINER_URL'] ?? 'http://127.0.0.1:7780';
  if (!URL.canParse(url) || new URL(url).protocol !== 'http:') {
    throw new UserError(`TERMINAL_RSI_TRAINER_URL: got ${JSON.stringify(url)}, expected an address such as http://127.0.0.1:7780`);
  }
  return url.replace(/\/+$/, '');
}
