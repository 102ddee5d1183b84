/**
 * What Envoy says of a secret that it refuses can hold the secret itself, in several spellings, and cut off anywhere. Another
 * client may spell it as it likes. So what is kept, logged or shown of such a text is short, and made of what looks like
 * words: key material is taken out, and so are long rows of digits, of codes and of snippets.
 */

/** Envoy cuts its messages at about 4 KB; whoever sends more is not Envoy. */
const MAX_READ = 8_192;
const MAX_LENGTH = 400;

const REDACTED = '[redacted]';

const SECRETS: readonly RegExp[] = [
  // A PEM block, as it is or with escaped newlines, up to its end or that of the text.
  /-----BEGIN [\s\S]*?(?:-----END [^-]*-----|$)/g,
  // The middle of one whose head is missing: base64 over lines, or a run too long for anything else. A SPIFFE ID or a path
  // has dots, colons or short segments.
  /[A-Za-z0-9+/]{40,}={0,2}(?:\\n|\s|[A-Za-z0-9+/=])*/g,
  // Binary data, as protobuf's text form escapes it.
  /(?:\\[0-7]{3}|\\x[0-9a-fA-F]{2}|\\[abfnrtv"'\\]|[ -~]){0,4}(?:\\[0-7]{3}|\\x[0-9a-fA-F]{2})(?:\\[0-7]{3}|\\x[0-9a-fA-F]{2}|\\[abfnrtv"'\\]|[^"\\]){8,}/g,
];

/** The text without anything that may be key material, and no longer than a person reads. */
export function redact(text: string): string {
  let safe = text.slice(0, MAX_READ);
  for (const secret of SECRETS) safe = safe.replace(secret, REDACTED);
  safe = withoutCodes(safe);
  return safe.length > MAX_LENGTH ? `${safe.slice(0, MAX_LENGTH)}…` : safe;
}

/** `word`: letters as words have them; `code`: letters with digits or in odd case; `number`: digits; `long`: none of these. */
type Kind = 'word' | 'code' | 'number' | 'long';

interface Run {
  readonly text: string;
  readonly start: number;
  readonly kind: Kind;
}

const MAX_WORD = 32;
const MAX_CODE = 12;
/** How long all codes may be together, and a row of codes and numbers: an error's code, an address or a time is shorter. */
const MAX_CODES = 20;
const MAX_ROW = 24;
/** How many snippets may follow one another, whatever they are. */
const MAX_SNIPPETS = 8;
const SNIPPET = 4;

function withoutCodes(text: string): string {
  const runs = Array.from(
    text.matchAll(/[A-Za-z0-9]+/g),
    ({ 0: run, index }): Run => ({ text: run, start: index, kind: kindOf(run) }),
  );
  const tooManyCodes = lengthOf(runs.filter(({ kind }) => kind === 'code')) > MAX_CODES;
  const taken = new Set<number>();
  for (const [index, { kind }] of runs.entries()) {
    if (kind === 'long' || (kind === 'code' && tooManyCodes)) taken.add(index);
  }
  const isCodeOrNumber = ({ kind }: Run): boolean => kind === 'code' || kind === 'number';
  takeRows(runs, isCodeOrNumber, (row) => lengthOf(row) > MAX_ROW, taken);
  takeRows(
    runs,
    ({ text }) => text.length <= SNIPPET,
    (row) => row.length > MAX_SNIPPETS,
    taken,
  );
  let safe = '';
  let at = 0;
  for (const [index, run] of runs.entries()) {
    if (!taken.has(index)) continue;
    // What stands between two pieces that are taken out goes with them.
    if (!taken.has(index - 1)) safe += `${text.slice(at, run.start)}${REDACTED}`;
    at = run.start + run.text.length;
  }
  return safe + text.slice(at);
}

function kindOf(run: string): Kind {
  if (/^\d+$/.test(run)) return run.length > MAX_CODE ? 'long' : 'number';
  if (/^(?:[a-z]+|[A-Z]+s?|[A-Za-z]?[a-z]+(?:[A-Z][a-z]+)*)$/.test(run)) return run.length > MAX_WORD ? 'long' : 'word';
  return run.length > MAX_CODE ? 'long' : 'code';
}

function lengthOf(runs: readonly Run[]): number {
  return runs.reduce((sum, { text }) => sum + text.length, 0);
}

/** Takes every row of runs of this sort that follow one another and are together too much. */
function takeRows(
  runs: readonly Run[],
  isOfSort: (run: Run) => boolean,
  isTooMuch: (row: readonly Run[]) => boolean,
  taken: Set<number>,
): void {
  for (let from = 0; from < runs.length; ) {
    let to = from;
    for (let run = runs[to]; run && isOfSort(run); run = runs[to]) to++;
    if (isTooMuch(runs.slice(from, to))) for (let index = from; index < to; index++) taken.add(index);
    from = to + 1;
  }
}
