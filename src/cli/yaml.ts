/** What JSON can hold. */
export type Json = string | number | boolean | null | readonly Json[] | JsonObject;
export type JsonObject = { readonly [key: string]: Json };

/**
 * The value as YAML in block style, two spaces deep, with a final newline. Strings are quoted wherever YAML 1.1 or 1.2
 * would take them for something else, so that every YAML reader gives back exactly what was put in.
 *
 * Throws a TypeError for numbers that are not finite: JSON, and with it Envoy, has none.
 */
export function toYaml(value: Json): string {
  return isBranch(value) ? `${lines(value).join('\n')}\n` : `${scalar(value)}\n`;
}

type Branch = readonly Json[] | JsonObject;

function isBranch(value: Json): value is Branch {
  return typeof value === 'object' && value !== null && Object.keys(value).length > 0;
}

function isList(value: Branch): value is readonly Json[] {
  return Array.isArray(value);
}

function lines(branch: Branch): string[] {
  if (isList(branch)) return branch.flatMap(item);
  return Object.entries(branch).flatMap(([key, value]) => entry(text(key), value));
}

function item(value: Json): string[] {
  if (!isBranch(value)) return [`- ${scalar(value)}`];
  return lines(value).map((line, index) => (index === 0 ? `- ${line}` : `  ${line}`));
}

function entry(key: string, value: Json): string[] {
  if (!isBranch(value)) return [`${key}: ${scalar(value)}`];
  const nested = lines(value);
  // A list may stand at the depth of its key, which keeps deep Envoy configurations readable.
  return [`${key}:`, ...(isList(value) ? nested : nested.map((line) => `  ${line}`))];
}

function scalar(value: Json): string {
  if (typeof value === 'string') return text(value);
  if (typeof value === 'number' && !Number.isFinite(value)) throw new TypeError(`${value} cannot be written as YAML`);
  if (typeof value === 'object' && value !== null) return Array.isArray(value) ? '[]' : '{}';
  return String(value);
}

// Words, paths and type URLs, and durations such as 0.1s: nothing that could begin a number, a date or an indicator.
const PLAIN = /^(?:[A-Za-z_/][\w./-]*|\d+(?:\.\d+)?(?:ms|s|m|h))$/;
const RESERVED = /^(?:true|false|yes|no|on|off|null|y|n)$/i;
const UNPRINTABLE = /[^\x20-\x7e]/gu;

/** JSON's quoted strings are YAML's too, if nothing but printable ASCII stands in them unescaped. */
function text(value: string): string {
  return PLAIN.test(value) && !RESERVED.test(value) ? value : JSON.stringify(value).replace(UNPRINTABLE, escaped);
}

/** By code point, where JSON would write two surrogates: YAML readers refuse these. */
function escaped(character: string): string {
  const hex = (character.codePointAt(0) ?? 0).toString(16);
  return hex.length > 4 ? `\\U${hex.padStart(8, '0')}` : `\\u${hex.padStart(4, '0')}`;
}
