import { type Command, Option } from 'commander';
import { type ConfigSources, defaultText, type FlagValues, type Setting, settingList } from '../config/index.js';
import { SdsdError } from '../errors.js';
import type { CliIo } from './io.js';

/** What commander collected, all of it still unchecked. */
export type Options = Readonly<Record<string, unknown>>;

export function optionsOf(command: Command): Options {
  return command.optsWithGlobals();
}

export function text(options: Options, key: string): string | undefined {
  const value = options[key];
  return typeof value === 'string' ? value : undefined;
}

export function flag(options: Options, key: string): boolean {
  return options[key] === true;
}

/** The option of a setting: its default is the setting's own, so commander gets none. */
export function settingOption(setting: Setting): Option {
  const option = new Option(
    `${setting.flag} ${setting.placeholder}`,
    `${setting.doc} (default: ${defaultText(setting)})`,
  );
  return setting.kind === 'list' ? option.argParser(collect) : option;
}

function collect(value: string, previous: unknown): readonly string[] {
  return [...(Array.isArray(previous) ? previous : []), value];
}

export function configFileOption(): Option {
  return new Option('--config <file>', 'YAML file with settings, below flags and environment variables');
}

export function outputOption(...formats: readonly [string, ...string[]]): Option {
  return new Option('-o, --output <format>', 'how to print the answer').choices(formats).default(formats[0]);
}

/** Where `loadConfig` finds its values: the options of this command, and the world. */
export function configSources(options: Options, io: CliIo): ConfigSources {
  return { flags: flagValues(options), file: text(options, 'config'), env: io.env, cwd: io.cwd };
}

function flagValues(options: Options): FlagValues {
  const values: Record<string, string | readonly string[]> = {};
  for (const setting of settingList) {
    if (setting.flag === undefined) continue;
    const value = options[settingOption(setting).attributeName()];
    if (typeof value === 'string') values[setting.key] = value;
    else if (Array.isArray(value)) values[setting.key] = value.map(String);
  }
  if (values['logLevel'] === undefined && flag(options, 'verbose')) values['logLevel'] = 'debug';
  if (values['logLevel'] === undefined && flag(options, 'quiet')) values['logLevel'] = 'warn';
  return values;
}

/** The value of --out, which names a place: an empty one is an unset variable in a script rather than a wish. */
export function outPath(options: Options): string | undefined {
  const out = text(options, 'out');
  if (out === '') throw usageError('--out is empty', 'name a place, such as --out ./here');
  return out;
}

export function usageError(message: string, hint: string): SdsdError {
  return new SdsdError('ERR_SDSD_USAGE', message, { hint });
}
