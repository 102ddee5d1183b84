import { printable, printableJson } from '../log.js';
import { type CliIo, mayColor } from './io.js';

/** A span of time in its two largest units: "3d 4h", "23h 59m", "12s", "0s". */
export function span(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1_000));
  const parts: readonly (readonly [number, string])[] = [
    [Math.floor(seconds / 86_400), 'd'],
    [Math.floor(seconds / 3_600) % 24, 'h'],
    [Math.floor(seconds / 60) % 60, 'm'],
    [seconds % 60, 's'],
  ];
  const first = parts.findIndex(([count]) => count > 0);
  if (first === -1) return '0s';
  return parts
    .slice(first, first + 2)
    .filter(([count]) => count > 0)
    .map(([count, unit]) => `${count}${unit}`)
    .join(' ');
}

/** What is left until `time`, both in milliseconds since the epoch: "23h 59m left", "expired 5m ago". */
export function timeLeft(time: number, now: number): string {
  return time > now ? `${span(time - now)} left` : `expired ${span(now - time)} ago`;
}

/** Rows under a head line, in columns; empty cells are shown as "-". Texts from elsewhere are made safe. */
export function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const lines = [head, ...rows.map((row) => row.map((cell) => (cell === '' ? '-' : printable(cell))))];
  const widths = head.map((_, column) => Math.max(...lines.map((line) => line[column]?.length ?? 0)));
  return lines
    .map(
      (line) =>
        `${line
          .map((cell, column) => cell.padEnd(widths[column] ?? 0))
          .join('  ')
          .trimEnd()}\n`,
    )
    .join('');
}

const COLORS = { green: 32, yellow: 33, red: 31 } as const;

/** Text in a colour, on a terminal that may have one. */
export function colored(io: CliIo, color: keyof typeof COLORS, text: string): string {
  return mayColor(io, io.stdout) ? `\u001b[${COLORS[color]}m${text}\u001b[0m` : text;
}

export function json(value: unknown): string {
  return `${printableJson(value, 2)}\n`;
}
