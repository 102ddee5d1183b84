import type { Clock } from './clock.js';
import { errnoOf } from './errors.js';

export const logLevels = ['debug', 'info', 'warn', 'error'] as const;
export type LogLevel = (typeof logLevels)[number];

export type LogFields = Readonly<Record<string, unknown>>;

/** Takes entries; never throws. Fields that are undefined are left out, and key material is withheld. */
export interface Logger {
  debug(message: string, fields?: LogFields): void;
  info(message: string, fields?: LogFields): void;
  warn(message: string, fields?: LogFields): void;
  error(message: string, fields?: LogFields): void;
}

export interface LoggerOptions {
  /** Entries below this level are dropped. */
  readonly level: LogLevel;
  readonly stream: { write(text: string): unknown };
  readonly clock: Pick<Clock, 'now'>;
  readonly color: boolean;
}

/** A logger that writes one line for each entry: time, level, message, `key=value`. */
export function createLogger({ level, stream, clock, color }: LoggerOptions): Logger {
  const lowest = logLevels.indexOf(level);
  const at = (entryLevel: LogLevel) => {
    if (logLevels.indexOf(entryLevel) < lowest) return () => undefined;
    return (message: string, fields?: LogFields): void => {
      try {
        stream.write(`${formatEntry(clock.now(), entryLevel, message, fields, color)}\n`);
      } catch {
        // A log that cannot be written must not stop what it tells of.
      }
    };
  };
  return { debug: at('debug'), info: at('info'), warn: at('warn'), error: at('error') };
}

const nothing = (): void => undefined;

/** Drops everything. */
export const silentLogger: Logger = { debug: nothing, info: nothing, warn: nothing, error: nothing };

const COLORS: Readonly<Record<LogLevel, number>> = { debug: 90, info: 36, warn: 33, error: 31 };

function formatEntry(time: number, level: LogLevel, message: string, fields: LogFields = {}, color: boolean): string {
  const label = level.padEnd(5);
  const parts = [timestamp(time), color ? `\u001b[${COLORS[level]}m${label}\u001b[0m` : label, printable(message)];
  for (const [key, value] of Object.entries(fields)) {
    if (value !== undefined) parts.push(`${printable(key)}=${quoted(valueText(value))}`);
  }
  return parts.join(' ');
}

function timestamp(time: number): string {
  const date = new Date(time);
  return Number.isNaN(date.getTime()) ? 'no-time' : date.toISOString();
}

function valueText(value: unknown): string {
  try {
    if (typeof value === 'string') return value;
    if (value instanceof Error) return errorText(value);
    if (value instanceof Uint8Array) return `<${value.length} bytes>`;
    if (value instanceof Date) return timestamp(value.getTime());
    if (typeof value === 'object' && value !== null) return JSON.stringify(value, jsonValue) ?? typeof value;
    return String(value);
  } catch {
    return '<cannot be shown>';
  }
}

function errorText(error: Error): string {
  const code = errnoOf(error);
  return code === undefined ? error.message : `${code}: ${error.message}`;
}

function jsonValue(_key: string, value: unknown): unknown {
  if (typeof value === 'bigint') return value.toString();
  if (value instanceof Error) return errorText(value);
  if (value instanceof Uint8Array) return '<bytes>';
  // Buffers arrive here as what their toJSON() made.
  if (typeof value === 'object' && value !== null && 'type' in value && value.type === 'Buffer') return '<bytes>';
  return value;
}

function quoted(text: string): string {
  const safe = printable(text);
  return safe === '' || /[\s"=]/.test(safe) ? `"${safe.replace(/"/g, '\\"')}"` : safe;
}

const PRIVATE_KEY = /-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|$)/g;
const UNPRINTABLE = /[\p{Cc}\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu;
const SHORT_ESCAPES = new Map([
  ['\n', '\\n'],
  ['\r', '\\r'],
  ['\t', '\\t'],
]);

/**
 * Text from elsewhere, made safe for a terminal and for one line: control characters and those that turn the direction of
 * writing are escaped, private keys in PEM are withheld.
 */
export function printable(text: string): string {
  return text
    .replace(PRIVATE_KEY, '<private key withheld>')
    .replace(
      UNPRINTABLE,
      (character) => SHORT_ESCAPES.get(character) ?? `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
    );
}
