/** Harbor itself, as published on PyPI, for tests that compare with it. Only tests use it; neither set-up nor a run does. */
import { type PythonEnvironment, pythonEnvironment } from '../scripts/python-environment.ts';

/** The newest release when this was written; its schemas are what the tests expect. */
export const HARBOR_VERSION = '0.26.0';

/** Harbor's Python, or why it cannot be had on this machine. */
export function harborPython(): Promise<PythonEnvironment | { readonly skip: string }> {
  return pythonEnvironment({ name: 'harbor', packages: [`harbor==${HARBOR_VERSION}`], minor: 12 });
}
