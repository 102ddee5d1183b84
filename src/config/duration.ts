const UNITS = new Map([
  ['ns', 1e-6],
  ['us', 1e-3],
  ['µs', 1e-3],
  ['μs', 1e-3],
  ['ms', 1],
  ['s', 1_000],
  ['m', 60_000],
  ['h', 3_600_000],
]);

const WHOLE = /^[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+$/;
const PART = /(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)/g;

/**
 * Reads a duration in the syntax of Go's `time.ParseDuration` (`24h`, `1h30m`, `300ms`, `-1.5s`, `0`), in milliseconds,
 * rounded to whole ones. Throws a RangeError that says what is wrong with the text.
 */
export function parseDuration(text: string): number {
  if (/^[+-]?0$/.test(text)) return 0;
  if (/^[+-]?\d+(?:\.\d*)?$/.test(text)) throw new RangeError('the number needs a unit: h, m, s or ms');
  if (/\dd/.test(text)) throw new RangeError('there is no unit "d": write a day as 24h');
  if (!WHOLE.test(text)) throw new RangeError('it is not a duration');
  let total = 0;
  for (const [, number, unit] of text.matchAll(PART)) {
    total += Number(number) * (UNITS.get(unit ?? '') ?? Number.NaN);
  }
  const rounded = Math.round(total);
  if (!Number.isSafeInteger(rounded)) throw new RangeError('it is too long');
  return text.startsWith('-') && rounded !== 0 ? -rounded : rounded;
}

/** Writes whole milliseconds as {@link parseDuration} reads them, without parts that are zero: `1h30m`, `300ms`, `0s`. */
export function formatDuration(ms: number): string {
  const total = Math.abs(Math.round(ms));
  const parts: readonly (readonly [number, string])[] = [
    [Math.floor(total / 3_600_000), 'h'],
    [Math.floor(total / 60_000) % 60, 'm'],
    [Math.floor(total / 1_000) % 60, 's'],
    [total % 1_000, 'ms'],
  ];
  const text = parts.map(([count, unit]) => (count === 0 ? '' : `${count}${unit}`)).join('');
  return text === '' ? '0s' : `${ms < 0 ? '-' : ''}${text}`;
}
