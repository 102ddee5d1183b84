import { readFileSync } from 'node:fs';

let version: string | undefined;

/** The version in package.json. */
export function productVersion(): string {
  version ??= read();
  return version;
}

function read(): string {
  const manifest: unknown = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'));
  if (typeof manifest === 'object' && manifest !== null && 'version' in manifest) return String(manifest.version);
  throw new Error('package.json has no version');
}
