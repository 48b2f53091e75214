/**
 * A real Chromium for the tests of the Temporal UI, driven by playwright-core, which brings no browser of its own: the one of
 * the machine is used (Debian: `apt-get install chromium`).
 */
import { accessSync, constants } from 'node:fs';
import path from 'node:path';
import { chromium } from 'playwright-core';
import type { Browser } from 'playwright-core';
import { UserError } from '../../environment/errors.ts';

const NAMES = ['chromium', 'chromium-browser', 'google-chrome'];

/**
 * Path of the browser: environment variable CHROMIUM_PATH, else the first of chromium, chromium-browser and google-chrome on PATH.
 * @returns undefined when there is none. @throws UserError when CHROMIUM_PATH names no program
 */
export function findBrowser(env: NodeJS.ProcessEnv = process.env): string | undefined {
  const named = env['CHROMIUM_PATH'];
  if (named) {
    if (!isProgram(named))
      throw new UserError(`CHROMIUM_PATH: got ${JSON.stringify(named)}, expected the path of a Chromium that can be run`);
    return named;
  }
  const folders = (env['PATH'] ?? '').split(path.delimiter).filter((folder) => folder !== '');
  return NAMES.flatMap((name) => folders.map((folder) => path.join(folder, name))).find(isProgram);
}

/** Why tests with a browser cannot run here; false where they can. */
export function browserMissing(): string | false {
  return findBrowser() === undefined && `no browser: set CHROMIUM_PATH, or install one (${NAMES.join(', ')}) on PATH`;
}

export async function launchBrowser(): Promise<Browser> {
  const executablePath = findBrowser();
  if (executablePath === undefined) throw new UserError(String(browserMissing()));
  // Chromium's own sandbox needs user namespaces, and refuses root, which CI is. The pages are our own.
  return await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-dev-shm-usage'] });
}

function isProgram(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
