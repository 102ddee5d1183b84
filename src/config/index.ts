export type * from './config.js';
export { formatDuration, parseDuration } from './duration.js';
export { type ClientConfig, type ConfigSources, type FlagValues, loadClientConfig, loadConfig } from './load.js';
export { nearest } from './nearest.js';
export { defaultText, EXAMPLE_FILE, LIST_SYNTAX, type Setting, settingList, settings } from './settings.js';
