import { SdsdError } from '../errors.js';

/** One block of textual encoding, RFC 7468. */
export interface PemBlock {
  /** What stands after BEGIN: "CERTIFICATE", "PRIVATE KEY", … */
  readonly label: string;
  readonly der: Buffer;
  /** RFC 1421 header fields such as `Proc-Type`, when there are any; then `der` may be encrypted. */
  readonly headers?: Readonly<Record<string, string>>;
}

/**
 * The blocks of PEM data, in order; an empty array when there is none. The input is taken as bytes: whatever stands
 * outside the markers is ignored, in any encoding. Takes every kind of line end, indentation, a byte order mark, and an
 * END marker with the next BEGIN on the same line. A BEGIN marker elsewhere in a line is text, not a marker.
 *
 * Throws `ERR_SDSD_PEM`, which names the block by its number, for one that is truncated, ends under another label or
 * does not decode, and for an END without a BEGIN: a block that was cut off must not be lost in silence.
 */
export function pemBlocks(input: Buffer): PemBlock[] {
  const text = input.toString('latin1');
  const blocks: PemBlock[] = [];
  let open: Marker | undefined;
  for (const marker of markersOf(text)) {
    const number = blocks.length + 1;
    if (open === undefined) {
      if (marker.kind === 'END') throw broken(number, marker.label, 'has an END marker, but no BEGIN marker');
      open = marker;
    } else {
      if (marker.kind === 'BEGIN') throw broken(number, open.label, `is cut off: ${marker.label} begins inside it`);
      if (marker.label !== open.label) throw broken(number, open.label, `ends as ${marker.label}`);
      blocks.push(blockOf(number, open.label, text.slice(open.end, marker.start)));
      open = undefined;
    }
  }
  if (open !== undefined) throw broken(blocks.length + 1, open.label, 'is cut off: its END marker is missing');
  return blocks;
}

/** One PEM block: base64 in lines of 64 columns, and exactly one newline at the end. RFC 7468 section 3. */
export function toPem(label: string, der: Buffer): string {
  const base64 = der.toString('base64');
  let body = '';
  for (let at = 0; at < base64.length; at += 64) body += `${base64.slice(at, at + 64)}\n`;
  return `-----BEGIN ${label}-----\n${body}-----END ${label}-----\n`;
}

/**
 * PEM texts one after the other, with exactly one newline between blocks and at the end, whatever the parts begin or end
 * with; empty parts vanish. A string when all parts are strings, otherwise a Buffer.
 */
export function joinPem(parts: readonly string[]): string;
export function joinPem(parts: readonly Buffer[]): Buffer;
export function joinPem(parts: readonly (string | Buffer)[]): string | Buffer;
export function joinPem(parts: readonly (string | Buffer)[]): string | Buffer {
  const text = parts
    .map((part) => (typeof part === 'string' ? Buffer.from(part) : part).toString('latin1'))
    .map((part) => part.trim().replace(BETWEEN_BLOCKS, '$1\n'))
    .filter((part) => part !== '')
    .map((part) => `${part}\n`)
    .join('');
  const bytes = Buffer.from(text, 'latin1');
  return parts.every((part) => typeof part === 'string') ? bytes.toString() : bytes;
}

const BETWEEN_BLOCKS = /(-----END [^\r\n-]{0,64}-----)\s*(?=-----BEGIN )/g;

interface Marker {
  readonly kind: 'BEGIN' | 'END';
  readonly label: string;
  readonly start: number;
  readonly end: number;
}

function* markersOf(text: string): Generator<Marker> {
  let inside = false;
  let lastEnd = -1;
  for (const match of text.matchAll(/-----(BEGIN|END) ([ -~]{0,64}?)-----/g)) {
    const [whole, word, label = ''] = match;
    const kind = word === 'BEGIN' ? 'BEGIN' : 'END';
    const start = match.index;
    if (!inside && start !== lastEnd && !startsLine(text, start)) continue;
    inside = kind === 'BEGIN';
    lastEnd = start + whole.length;
    yield { kind, label, start, end: lastEnd };
  }
}

/** Whether only white space, or a byte order mark, stands between the start of the line and `at`. */
function startsLine(text: string, at: number): boolean {
  let start = at;
  while (start > 0 && (text[start - 1] === ' ' || text[start - 1] === '\t')) start--;
  return start === 0 || /[\r\n]/.test(text.charAt(start - 1)) || (start === 3 && text.startsWith('\xef\xbb\xbf'));
}

function blockOf(number: number, label: string, inner: string): PemBlock {
  const { headers, body } = splitHeaders(inner);
  const base64 = body.replace(/\s+/g, '');
  if (base64 === '') throw broken(number, label, 'is empty');
  if (base64.length % 4 !== 0 || !/^[A-Za-z0-9+/]*={0,2}$/.test(base64)) {
    throw broken(number, label, 'is not base64, or a part of it is missing');
  }
  const der = Buffer.from(base64, 'base64');
  return headers === undefined ? { label, der } : { label, der, headers };
}

/** RFC 1421 section 4.6: header fields, folded lines among them, up to the first empty line. */
function splitHeaders(inner: string): { headers?: Record<string, string>; body: string } {
  if (!inner.includes(':')) return { body: inner };
  const headers: Record<string, string> = {};
  const lines = inner.split(/\r\n|\r|\n/);
  let at = 0;
  let name = '';
  for (const line of lines) {
    const field = /^\s*([!-9;-~]+):\s*(.*)$/.exec(line);
    if (field !== null) {
      name = field[1] ?? '';
      headers[name] = (field[2] ?? '').trim();
    } else if (name !== '' && /^\s+\S/.test(line)) {
      headers[name] = `${headers[name] ?? ''}${line.trim()}`;
    } else if (line.trim() !== '' || name !== '') {
      break;
    }
    at++;
  }
  return { headers, body: lines.slice(at).join('\n') };
}

function broken(number: number, label: string, fault: string): SdsdError {
  return new SdsdError('ERR_SDSD_PEM', `PEM block ${number} (${label}) ${fault}`, {
    hint: 'write the file again from its source, whole',
  });
}
