import { readFile } from 'node:fs/promises';
import { messageOf, SdsdError } from '../errors.js';
import { nearest } from './nearest.js';
import { type Setting, settingList } from './settings.js';

/** One value of a setting, and where it stands. */
export interface FileItem {
  readonly text: string;
  /** Counts from 1. */
  readonly line: number;
}

/** The values in a file, by the key of their setting. */
export type FileValues = ReadonlyMap<string, readonly FileItem[]>;

/**
 * Reads a YAML configuration file. Scalars are taken as they are written (`0660` stays `0660`), a map of a list setting
 * becomes `key=value` items. Throws ERR_SDSD_CONFIG with file and line.
 */
export async function readYamlFile(path: string): Promise<FileValues> {
  const text = await readText(path);
  const { LineCounter, isAlias, isMap, isScalar, isSeq, parseDocument } = await import('yaml');
  const lines = new LineCounter();
  const document = parseDocument(text, { schema: 'failsafe', lineCounter: lines, prettyErrors: false });
  const lineOf = (offset: number | undefined): number => lines.linePos(offset ?? 0).line;
  const offsetOf = (node: unknown): number | undefined =>
    isScalar(node) || isMap(node) || isSeq(node) || isAlias(node) ? node.range?.[0] : undefined;

  const fault = document.errors[0];
  if (fault)
    throw refusal(
      path,
      lineOf(fault.pos[0]),
      `this is not YAML: ${fault.message}`,
      'correct the syntax; a text that holds ": " or " #" needs quotes',
    );

  const scalarText = (node: unknown, line: number): string => {
    const target = isAlias(node) ? node.resolve(document) : node;
    if (isScalar(target) && typeof target.value === 'string') return target.value;
    throw refusal(
      path,
      line,
      'a plain value is needed here, not a map or a list',
      'write it in one line, such as secretTtl: 24h',
    );
  };

  const itemsOf = (setting: Setting, node: unknown, keyLine: number): readonly FileItem[] => {
    const value = isAlias(node) ? node.resolve(document) : node;
    if (setting.kind !== 'list') return [{ text: scalarText(value, keyLine), line: keyLine }];
    if (isSeq(value)) {
      return value.items.map((item) => {
        const line = lineOf(offsetOf(item));
        return { text: scalarText(item, line), line };
      });
    }
    if (isMap(value)) {
      return value.items.map((pair) => {
        const line = lineOf(offsetOf(pair.key));
        return { text: `${scalarText(pair.key, line)}=${scalarText(pair.value, line)}`, line };
      });
    }
    throw refusal(
      path,
      keyLine,
      `${setting.key} must be a map or a sequence`,
      `${setting.key}: [${setting.example}] (allowed: ${setting.allowed})`,
    );
  };

  const root = document.contents;
  if (root === null) return new Map();
  if (!isMap(root))
    throw refusal(
      path,
      1,
      'the file must be a map of settings',
      'write each one in a line of its own, such as secretTtl: 24h',
    );
  const values = new Map<string, readonly FileItem[]>();
  for (const pair of root.items) {
    const line = lineOf(offsetOf(pair.key));
    const setting = settingFor(scalarText(pair.key, line), path, line);
    values.set(setting.key, itemsOf(setting, pair.value, line));
  }
  return values;
}

async function readText(path: string): Promise<string> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    throw new SdsdError('ERR_SDSD_CONFIG', `cannot read the configuration file ${path}: ${messageOf(error)}`, {
      hint: 'give --config the path of a YAML file that this user may read',
      cause: error,
    });
  }
}

function settingFor(key: string, path: string, line: number): Setting {
  const setting = settingList.find((candidate) => candidate.key === key);
  if (setting) return setting;
  const names = new Map(
    settingList.flatMap((known) => [known.key, ...known.variables].map((name) => [name, known.key])),
  );
  const near = nearest(key, names.keys());
  const known = near === undefined ? undefined : names.get(near);
  throw refusal(
    path,
    line,
    `there is no setting ${JSON.stringify(key)}`,
    known === undefined ? `the settings are ${settingList.map(({ key }) => key).join(', ')}` : `did you mean ${known}?`,
  );
}

function refusal(path: string, line: number, what: string, hint: string): SdsdError {
  return new SdsdError('ERR_SDSD_CONFIG', `${path}:${line}: ${what}`, { hint });
}
