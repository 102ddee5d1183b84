export type { CaFiles } from './ca-files.js';
export { type LocalCa, type LocalCaOptions, openLocalCa } from './local-ca.js';
