/** Writes the parts of `docs/` that come from the code. `npm run docs`; a test checks that they are up to date. */
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { errorCodes } from '../src/errors.js';

export const errorsPage = fileURLToPath(new URL('../docs/errors.md', import.meta.url));

/** The page with its table made anew; everything else in it is written by hand. */
export function errorsMarkdown(page: string): string {
  const rows = Object.entries(errorCodes).map(([code, { meaning, cure }]) => `| \`${code}\` | ${meaning} | ${cure} |`);
  const table = ['| Code | Meaning | What to do |', '|---|---|---|', ...rows].join('\n');
  return page.replace(/\| Code [\s\S]*?\n\n/, `${table}\n\n`);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  writeFileSync(errorsPage, errorsMarkdown(readFileSync(errorsPage, 'utf8')));
}
