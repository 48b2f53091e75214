/** Reads task.toml: from text to validated tables, with warnings for keys that mean nothing here. */
import { parse } from 'smol-toml';
import { TaskError } from '../errors.ts';
import { taskTomlSchema, unknownKeys, type TaskTomlTables } from './toml-schema.ts';

export interface TaskLogger {
  warn(message: string): void;
}

/**
 * @param text the file's content
 * @param file its path, for messages
 * @throws TaskError naming file, key, value and what was expected
 */
export function readTaskToml(text: string, file: string, logger?: TaskLogger): TaskTomlTables {
  const tables = parseToml(text, file);
  // The old name of schema_version; the new one wins where both stand.
  if (tables.version !== undefined) tables.schema_version ??= tables.version;
  const result = taskTomlSchema.safeParse(tables);
  if (!result.success) {
    const [issue] = result.error.issues;
    const path = issue?.path ?? [];
    const value = valueAt(tables, path);
    throw new TaskError(
      `${file}: ${path.join('.')}${value === undefined ? '' : ` = ${JSON.stringify(value)}`}: ${issue?.message ?? 'not valid'}`,
    );
  }
  if (logger) for (const key of unknownKeys(taskTomlSchema, tables)) logger.warn(`${file}: unknown key ${key} is ignored`);
  return result.data;
}

/** @throws TaskError */
export function parseToml(text: string, file: string): Record<string, unknown> {
  try {
    return parse(text);
  } catch (error) {
    throw new TaskError(`${file}: not valid TOML: ${(error as Error).message.split('\n')[0]}`);
  }
}

function valueAt(value: unknown, path: readonly PropertyKey[]): unknown {
  return path.reduce<unknown>(
    (at, key) => (typeof at === 'object' && at !== null ? (at as Record<PropertyKey, unknown>)[key] : undefined),
    value,
  );
}
