import { LRUCache } from 'lru-cache';
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

/** A client may cause this many lines at once, and then one every so often; and so may all clients together. */
const CLIENT_LINES = { burst: 20, everyMs: 10_000 };
const ALL_LINES = { burst: 200, everyMs: 100 };
const MAX_CLIENTS = 1_000;

interface Bucket {
  lines: number;
  /** When `lines` was right, in milliseconds since the epoch. */
  at: number;
}

/** Warnings that clients cause. So many that a person can read them; what is left out is counted in the next line. */
export class ClientLog {
  readonly #log: Logger;
  readonly #clock: Pick<Clock, 'now'>;
  readonly #clients = new LRUCache<string, Bucket>({ max: MAX_CLIENTS });
  readonly #all: Bucket;
  #leftOut = 0;

  constructor(log: Logger, clock: Pick<Clock, 'now'>) {
    this.#log = log;
    this.#clock = clock;
    this.#all = { lines: ALL_LINES.burst, at: clock.now() };
  }

  /** @param client what the lines are counted by: its connection. */
  warn(client: string, message: string, fields: LogFields): void {
    const now = this.#clock.now();
    const own = this.#clients.get(client) ?? { lines: CLIENT_LINES.burst, at: now };
    this.#clients.set(client, own);
    refill(own, CLIENT_LINES, now);
    refill(this.#all, ALL_LINES, now);
    if (own.lines < 1 || this.#all.lines < 1) {
      this.#leftOut += 1;
      return;
    }
    own.lines -= 1;
    this.#all.lines -= 1;
    this.#log.warn(message, { ...fields, ...(this.#leftOut > 0 && { linesLeftOut: this.#leftOut }) });
    this.#leftOut = 0;
  }
}

function refill(bucket: Bucket, { burst, everyMs }: typeof CLIENT_LINES, now: number): void {
  bucket.lines = Math.min(burst, bucket.lines + Math.max(0, now - bucket.at) / everyMs);
  bucket.at = now;
}

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
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu;
const SHORT_ESCAPES = new Map([
  ['\n', '\\n'],
  ['\r', '\\r'],
  ['\t', '\\t'],
]);

/**
 * Text from elsewhere, made safe for a terminal and for one line: control and format characters, among them those that turn
 * the direction of writing, are escaped, and private keys in PEM are withheld.
 */
export function printable(text: string): string {
  return text
    .replace(PRIVATE_KEY, '<private key withheld>')
    .replace(UNPRINTABLE, (character) => SHORT_ESCAPES.get(character) ?? unicodeEscape(character));
}

/** JSON with every character of {@link printable}'s kind escaped, which JSON itself does only for some. */
export function printableJson(value: unknown, indent?: number): string {
  const text = JSON.stringify(value, undefined, indent);
  // Between values there are newlines, and nothing else of this kind.
  return text.replace(UNPRINTABLE, (character) => (character === '\n' ? character : unicodeEscape(character)));
}

/** As JSON and JavaScript write it: one escape for each UTF-16 code unit. */
function unicodeEscape(character: string): string {
  return Array.from(
    { length: character.length },
    (_, at) => `\\u${character.charCodeAt(at).toString(16).padStart(4, '0')}`,
  ).join('');
}
