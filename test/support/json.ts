import type { Json, JsonObject } from '../../src/cli/yaml.js';

/** What lies at the end of the path in parsed JSON; undefined if the path leads nowhere. */
export function dig(value: unknown, ...path: readonly (string | number)[]): unknown {
  return path.reduce<unknown>((at, key) => (isRecord(at) ? at[key] : undefined), value);
}

/** The list at the end of the path; empty if there is none, as Envoy leaves out empty lists. */
export function digList(value: unknown, ...path: readonly (string | number)[]): readonly unknown[] {
  const found = dig(value, ...path);
  return Array.isArray(found) ? found : [];
}

/** The string at the end of the path; throws if there is none. */
export function digString(value: unknown, ...path: readonly (string | number)[]): string {
  const found = dig(value, ...path);
  if (typeof found !== 'string') throw new TypeError(`no string at ${path.join('.')} of ${JSON.stringify(value)}`);
  return found;
}

function isRecord(value: unknown): value is Record<string | number, unknown> {
  return typeof value === 'object' && value !== null;
}

/** A copy in which `change` was made to what lies at the end of the path. Throws if the path leads nowhere. */
export function withChange(value: Json, path: readonly (string | number)[], change: (found: JsonObject) => Json): Json {
  const [key, ...rest] = path;
  if (isList(value)) {
    if (typeof key !== 'number' || value[key] === undefined) throw new TypeError(`no item ${key}`);
    return value.map((item, index) => (index === key ? withChange(item, rest, change) : item));
  }
  if (typeof value !== 'object' || value === null) throw new TypeError(`nothing to change at ${path.join('.')}`);
  if (key === undefined) return change(value);
  const inner = value[key];
  if (inner === undefined) throw new TypeError(`no field ${key}`);
  return { ...value, [key]: withChange(inner, rest, change) };
}

function isList(value: Json): value is readonly Json[] {
  return Array.isArray(value);
}
