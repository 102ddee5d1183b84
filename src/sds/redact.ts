/**
 * What Envoy says of a secret that it refuses can hold the secret itself, in several spellings, and cut off anywhere.
 * Key material is taken out before the text is kept, logged or shown.
 */

/** Envoy cuts its messages at about 4 KB; whoever sends more is not Envoy. */
const MAX_READ = 8_192;
const MAX_LENGTH = 1_000;

const SECRETS: readonly RegExp[] = [
  // A PEM block, as it is or with escaped newlines, up to its end or that of the text.
  /-----BEGIN [\s\S]*?(?:-----END [^-]*-----|$)/g,
  // The middle of one whose head is missing: base64 over lines, or a run too long for anything else. A SPIFFE ID or a path
  // has dots, colons or short segments; a fingerprint has 64 digits at the most, all hexadecimal.
  /(?![0-9a-fA-F]{40,64}(?![A-Za-z0-9+/=]))[A-Za-z0-9+/]{40,}={0,2}(?:\\n|\s|[A-Za-z0-9+/=])*/g,
  // Binary data, as protobuf's text form escapes it.
  /(?:\\[0-7]{3}|\\x[0-9a-fA-F]{2}|\\[abfnrtv"'\\]|[ -~]){0,4}(?:\\[0-7]{3}|\\x[0-9a-fA-F]{2})(?:\\[0-7]{3}|\\x[0-9a-fA-F]{2}|\\[abfnrtv"'\\]|[^"\\]){8,}/g,
];

/** The text without anything that may be key material, and no longer than a person reads. */
export function redact(text: string): string {
  let safe = text.slice(0, MAX_READ);
  for (const secret of SECRETS) safe = safe.replace(secret, '[redacted]');
  return safe.length > MAX_LENGTH ? `${safe.slice(0, MAX_LENGTH)}…` : safe;
}
