/** Writes the parts of `docs/` that come from the code. `npm run docs`; a test checks that they are up to date. */
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { defaultText, EXAMPLE_FILE, LIST_SYNTAX, type Setting, settingList } from '../src/config/index.js';
import { errorCodes } from '../src/errors.js';

export const errorsPage = fileURLToPath(new URL('../docs/errors.md', import.meta.url));
export const settingsPage = fileURLToPath(new URL('../docs/settings.md', import.meta.url));

/** The page with its table made anew; everything else in it is written by hand. */
export function errorsMarkdown(page: string): string {
  const rows = Object.entries(errorCodes).map(([code, { meaning, cure }]) => `| \`${code}\` | ${meaning} | ${cure} |`);
  const table = ['| Code | Meaning | What to do |', '|---|---|---|', ...rows].join('\n');
  return page.replace(/\| Code [\s\S]*?\n\n/, () => `${table}\n\n`);
}

/** The page with its example and its settings made anew: all from the example to the end. */
export function settingsMarkdown(page: string): string {
  const example = `\`\`\`yaml\n${EXAMPLE_FILE}\`\`\`\n`;
  return page.replace(/```yaml\n[\s\S]*$/, () => [example, ...settingList.map(settingSection)].join('\n'));
}

function settingSection(setting: Setting): string {
  const { key, flag, variables, doc, allowed } = setting;
  const lines = [
    `- Variable: ${variables.map(code).join(', ')}`,
    ...(flag === undefined ? [] : [`- Flag: ${code(flag)}`]),
    `- Default: ${setting.kind === 'required' ? code(setting.default) : defaultText(setting)}`,
    `- Allowed: ${allowed}`,
    ...(setting.kind === 'required' ? [] : [`- Example: ${code(`${variables[0]}=${setting.example}`)}`]),
    ...(setting.kind === 'list' ? [`- ${LIST_SYNTAX}`] : []),
  ];
  return `## ${code(key)}\n\n${doc}\n\n${lines.join('\n')}\n`;
}

function code(text: string): string {
  return `\`${text}\``;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  writeFileSync(errorsPage, errorsMarkdown(readFileSync(errorsPage, 'utf8')));
  writeFileSync(settingsPage, settingsMarkdown(readFileSync(settingsPage, 'utf8')));
}
