/**
 * JSON with one spelling per value, so that equal values have equal hashes: keys sorted by UTF-16 code units (as in
 * RFC 8785), no white space, and an error where `JSON.stringify` would silently change the value.
 */
import { createHash } from 'node:crypto';

/**
 * Canonical JSON of `value`. Properties that are `undefined` are left out, because absent and undefined mean the same here.
 * Throws TypeError naming the place for what JSON cannot hold: NaN, infinities, undefined in arrays or at the top, functions,
 * bigint, and objects with a class (Date, Map, typed arrays …).
 */
export function canonicalJson(value: unknown): string {
  return encode(value, '$');
}

/** Hex SHA-256 of the canonical JSON: equal values, equal hashes. Throws as `canonicalJson` does. */
export function canonicalHash(value: unknown): string {
  return createHash('sha256').update(canonicalJson(value)).digest('hex');
}

function encode(value: unknown, place: string): string {
  if (value === null || typeof value === 'boolean' || typeof value === 'string') return JSON.stringify(value);
  if (typeof value === 'number') {
    if (!Number.isFinite(value)) throw new TypeError(`${place} is ${value}; expected a finite number (JSON has no NaN or infinity)`);
    return JSON.stringify(value);
  }
  if (Array.isArray(value)) return `[${Array.from(value, (item: unknown, i) => encode(item, `${place}[${i}]`)).join(',')}]`;
  if (typeof value === 'object') {
    const prototype: unknown = Object.getPrototypeOf(value);
    if (prototype !== Object.prototype && prototype !== null) {
      throw new TypeError(`${place} is a ${value.constructor.name}; expected a plain object, array, string, number, boolean or null`);
    }
    const entries = Object.entries(value)
      .filter(([, item]) => item !== undefined)
      .sort(([a], [b]) => (a < b ? -1 : 1));
    return `{${entries.map(([key, item]) => `${JSON.stringify(key)}:${encode(item, `${place}.${key}`)}`).join(',')}}`;
  }
  throw new TypeError(`${place} is ${typeof value}; expected a value that JSON can hold`);
}
