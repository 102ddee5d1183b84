import { isAbsolute, resolve } from 'node:path';
import { messageOf } from '../errors.js';
import { type LogLevel, logLevels } from '../log.js';
import { parseSpiffeId, trustDomainFault } from '../pki/spiffe-id.js';
import type { NamedIdentity } from './config.js';
import { formatDuration, parseDuration } from './duration.js';

/** What a parser may look at besides the text. */
export interface ParseContext {
  /** The working directory, absolute. */
  readonly cwd: string;
  /** The environment variable that the text comes from, if it does. */
  readonly variable: string | undefined;
}

interface SettingBase {
  /** The key in the YAML file. */
  readonly key: string;
  /** The option of `sdsd run`, such as `--socket`. */
  readonly flag?: string;
  /** What stands for the value in the help text. */
  readonly placeholder: string;
  /** Environment variables; the first that is set counts. */
  readonly variables: readonly [string, ...string[]];
  /** One sentence for the help text and the documentation. */
  readonly doc: string;
  /** What values are allowed, for the help text, the documentation and error messages. */
  readonly allowed: string;
  /** A value that can be used, in the syntax of a variable. */
  readonly example: string;
  /** An empty variable is refused; otherwise it counts as not set. */
  readonly refuseEmpty?: true;
}

/** A setting that always has a value. */
export interface RequiredSetting<T> extends SettingBase {
  readonly kind: 'required';
  /** The value if nobody sets one, in the syntax of a variable. */
  readonly default: string;
  /** Throws an error whose message says why the text is refused. */
  readonly parse: (text: string, context: ParseContext) => T;
}

/** A setting whose absence means something. */
export interface OptionalSetting<T> extends SettingBase {
  readonly kind: 'optional';
  /** What absence means, for the help text. */
  readonly unset: string;
  readonly parse: (text: string, context: ParseContext) => T;
}

/** A setting with any number of values: a repeated flag, a comma-separated variable, a YAML map or sequence. */
export interface ListSetting<T> extends SettingBase {
  readonly kind: 'list';
  readonly unset: string;
  readonly parse: (text: string, context: ParseContext) => T;
  /** Two values with the same name are refused. */
  nameOf(value: T): string;
}

export type Setting = RequiredSetting<unknown> | OptionalSetting<unknown> | ListSetting<unknown>;

/** The example of a setting that always has a value is its default. */
const required = <T>(setting: Omit<RequiredSetting<T>, 'kind' | 'example'>): RequiredSetting<T> => ({
  ...setting,
  example: setting.default,
  kind: 'required',
});
const optional = <T>(setting: Omit<OptionalSetting<T>, 'kind'>): OptionalSetting<T> => ({
  ...setting,
  kind: 'optional',
});
const list = <T>(setting: Omit<ListSetting<T>, 'kind'>): ListSetting<T> => ({ ...setting, kind: 'list' });

const YEAR_MS = 365 * 24 * 3_600_000;
/** As Go reads them, for Istio does. */
const BOOL_ALLOWED = 'true or false; also t, T, True, TRUE, 1 and f, F, False, FALSE, 0';
const PATH_ALLOWED = 'a path, absolute or below the working directory';

/**
 * Every setting, in the order of the help text. The variables without SDSD_ are Istio's and keep Istio's meaning.
 */
export const settings = {
  socket: required({
    key: 'socket',
    flag: '--socket',
    placeholder: '<path>',
    variables: ['SDS_SOCKET'],
    default: './var/run/secrets/workload-spiffe-uds/socket',
    doc: 'Unix socket on which Envoy asks for secrets.',
    allowed: PATH_ALLOWED,
    parse: path,
  }),
  socketMode: required({
    key: 'socketMode',
    placeholder: '<octal>',
    variables: ['SDSD_SOCKET_MODE'],
    default: '0660',
    doc: 'Permission bits of that socket: whoever may write to it gets the keys.',
    allowed: 'an octal number from 0600 to 0777 that lets the owner read and write',
    parse: socketMode,
  }),
  stateDir: required({
    key: 'stateDir',
    flag: '--state-dir',
    placeholder: '<dir>',
    variables: ['SDSD_STATE_DIR', 'STATE_DIRECTORY'],
    default: './var/lib/sdsd',
    doc: 'Directory for the local CA and all else that outlives a restart.',
    allowed: PATH_ALLOWED,
    // systemd joins several directories with colons; the first is ours.
    parse: (text, context) => path(context.variable === 'STATE_DIRECTORY' ? (text.split(':')[0] ?? '') : text, context),
  }),
  stateKeyFile: optional({
    key: 'stateKeyFile',
    placeholder: '<file>',
    variables: ['SDSD_STATE_KEY_FILE'],
    unset: 'keys are in memory only, and a restart needs the CA',
    doc: 'File with a key of 32 bytes, under which certificates and keys are kept encrypted over a restart.',
    allowed: PATH_ALLOWED,
    example: '/etc/sdsd/state.key',
    parse: path,
  }),
  controlSocket: required({
    key: 'controlSocket',
    flag: '--control-socket',
    placeholder: '<path>',
    variables: ['SDSD_CONTROL_SOCKET'],
    default: './var/run/sdsd/admin.sock',
    doc: 'Unix socket for `sdsd status`, `rotate`, `issue` and the like; for this user only.',
    allowed: PATH_ALLOWED,
    parse: path,
  }),
  trustDomain: required({
    key: 'trustDomain',
    flag: '--trust-domain',
    placeholder: '<name>',
    variables: ['TRUST_DOMAIN'],
    default: 'cluster.local',
    doc: 'Trust domain of the workload identity.',
    allowed: 'a SPIFFE trust domain: 1 to 255 lower-case letters, digits, dots, dashes and underscores',
    refuseEmpty: true,
    parse: trustDomain,
  }),
  namespace: required({
    key: 'namespace',
    flag: '--namespace',
    placeholder: '<name>',
    variables: ['POD_NAMESPACE'],
    default: 'default',
    doc: 'Namespace of the workload identity.',
    allowed: '1 to 253 letters, digits, dots, dashes and underscores, but not . or ..',
    refuseEmpty: true,
    parse: pathSegment,
  }),
  serviceAccount: required({
    key: 'serviceAccount',
    flag: '--service-account',
    placeholder: '<name>',
    variables: ['SERVICE_ACCOUNT'],
    default: 'default',
    doc: 'Service account of the workload identity.',
    allowed: '1 to 253 letters, digits, dots, dashes and underscores, but not . or ..',
    refuseEmpty: true,
    parse: pathSegment,
  }),
  identities: list({
    key: 'identities',
    flag: '--identity',
    placeholder: '<name=spiffe-id>',
    variables: ['SDSD_IDENTITIES'],
    unset: 'none',
    doc: 'A further resource name and the identity that it stands for; may be repeated.',
    allowed:
      'name=spiffe://trust-domain/path, or a SPIFFE ID that is its own name; a name has 1 to 253 letters, digits, dots, dashes, underscores and inner slashes',
    example: 'web=spiffe://cluster.local/ns/shop/sa/web',
    parse: namedIdentity,
    nameOf: (identity) => identity.name,
  }),
  secretTtl: required({
    key: 'secretTtl',
    flag: '--secret-ttl',
    placeholder: '<duration>',
    variables: ['SECRET_TTL'],
    default: '24h',
    doc: 'Lifetime to ask for in a certificate.',
    ...duration(2_000, 10 * YEAR_MS),
  }),
  gracePeriodRatio: required({
    key: 'gracePeriodRatio',
    placeholder: '<ratio>',
    variables: ['SECRET_GRACE_PERIOD_RATIO'],
    default: '0.5',
    doc: 'A certificate is renewed when this share of its lifetime is left.',
    allowed: 'a number between 0 and 1: greater than the jitter, and less than 1 together with it',
    parse: ratio,
  }),
  gracePeriodRatioJitter: required({
    key: 'gracePeriodRatioJitter',
    placeholder: '<ratio>',
    variables: ['SECRET_GRACE_PERIOD_RATIO_JITTER'],
    default: '0.05',
    doc: 'How much that share varies at random, up and down, so that many hosts do not renew at once.',
    allowed: 'a number from 0 to less than the ratio',
    parse: ratio,
  }),
  caProvider: optional({
    key: 'caProvider',
    placeholder: '<name>',
    variables: ['CA_PROVIDER'],
    unset: 'local, unless CA_ADDR is set or the daemon runs in Kubernetes: there it must be asked for',
    doc: 'Who signs. This version has only its own local CA.',
    allowed: 'local',
    example: 'local',
    parse: (text) => text,
  }),
  caAddr: optional({
    key: 'caAddr',
    placeholder: '<address>',
    variables: ['CA_ADDR'],
    unset: 'none',
    doc: 'Address of a CA. This version cannot ask one: with CA_PROVIDER=local it is ignored, else refused.',
    allowed: 'an address',
    example: 'ca.example:15012',
    parse: (text) => text,
  }),
  caCertFile: optional({
    key: 'caCertFile',
    placeholder: '<file>',
    variables: ['SDSD_CA_CERT'],
    unset: 'the local CA makes its own',
    doc: 'PEM certificate that the local CA signs with; needs SDSD_CA_KEY.',
    allowed: PATH_ALLOWED,
    example: '/etc/sdsd/ca.pem',
    parse: path,
  }),
  caKeyFile: optional({
    key: 'caKeyFile',
    placeholder: '<file>',
    variables: ['SDSD_CA_KEY'],
    unset: 'the local CA makes its own',
    doc: 'PEM key of that certificate; needs SDSD_CA_CERT.',
    allowed: PATH_ALLOWED,
    example: '/etc/sdsd/ca.key',
    parse: path,
  }),
  caRootFile: optional({
    key: 'caRootFile',
    placeholder: '<file>',
    variables: ['SDSD_CA_ROOT'],
    unset: 'the certificate in SDSD_CA_CERT is itself the root',
    doc: 'PEM roots above SDSD_CA_CERT.',
    allowed: PATH_ALLOWED,
    example: '/etc/sdsd/root.pem',
    parse: path,
  }),
  caIntermediate: required({
    key: 'caIntermediate',
    placeholder: '<bool>',
    variables: ['SDSD_CA_INTERMEDIATE'],
    default: 'false',
    doc: 'Whether the local CA signs with an intermediate below its root.',
    allowed: BOOL_ALLOWED,
    parse: bool,
  }),
  rsaKeySize: optional({
    key: 'rsaKeySize',
    placeholder: '<bits>',
    variables: ['WORKLOAD_RSA_KEY_SIZE'],
    unset: 'ECDSA keys',
    doc: 'Size of RSA keys for certificates, instead of ECDSA keys.',
    allowed: '2048, 3072 or 4096',
    example: '3072',
    parse: rsaKeySize,
  }),
  eccSignatureAlgorithm: optional({
    key: 'eccSignatureAlgorithm',
    placeholder: '<name>',
    variables: ['ECC_SIGNATURE_ALGORITHM'],
    unset: 'ECDSA, unless WORKLOAD_RSA_KEY_SIZE is set',
    doc: 'Asks for ECDSA keys; wins over WORKLOAD_RSA_KEY_SIZE.',
    allowed: 'ECDSA',
    example: 'ECDSA',
    parse: eccSignatureAlgorithm,
  }),
  eccCurve: required({
    key: 'eccCurve',
    placeholder: '<curve>',
    variables: ['ECC_CURVE'],
    default: 'P256',
    doc: 'Curve of ECDSA keys. With P384 an Envoy needs TLS 1.3, or `ecdh_curves: [P-384]`, in its `tls_params`: its clients speak TLS 1.2 without that curve by default, and every handshake fails.',
    allowed: 'P256 or P384',
    parse: eccCurve,
  }),
  pkcs8Key: required({
    key: 'pkcs8Key',
    placeholder: '<bool>',
    variables: ['PKCS8_KEY'],
    default: 'false',
    doc: 'Whether keys are written as PKCS#8, instead of SEC1 (ECDSA) and PKCS#1 (RSA).',
    allowed: BOOL_ALLOWED,
    parse: bool,
  }),
  maxIdleNames: required({
    key: 'maxIdleNames',
    placeholder: '<count>',
    variables: ['SDSD_MAX_IDLE_NAMES'],
    default: '10000',
    doc: 'How many names that nobody subscribes to are kept in memory.',
    allowed: 'a whole number from 1 to 1000000',
    parse: wholeNumber(1, 1_000_000),
  }),
  maxConnections: required({
    key: 'maxConnections',
    placeholder: '<count>',
    variables: ['SDSD_MAX_CONNECTIONS'],
    default: '10000',
    doc: 'How many connections the SDS socket takes at a time.',
    allowed: 'a whole number from 1 to 1000000',
    parse: wholeNumber(1, 1_000_000),
  }),
  maxStreams: required({
    key: 'maxStreams',
    placeholder: '<count>',
    variables: ['SDSD_MAX_STREAMS'],
    default: '100000',
    doc: 'How many SDS streams are open at a time, over all connections.',
    allowed: 'a whole number from 1 to 1000000',
    parse: wholeNumber(1, 1_000_000),
  }),
  maxNamesPerStream: required({
    key: 'maxNamesPerStream',
    placeholder: '<count>',
    variables: ['SDSD_MAX_NAMES_PER_STREAM'],
    default: '10000',
    doc: 'How many names one stream may subscribe to.',
    allowed: 'a whole number from 1 to 1000000',
    parse: wholeNumber(1, 1_000_000),
  }),
  maxClientMemory: optional({
    key: 'maxClientMemory',
    placeholder: '<size>',
    variables: ['SDSD_MAX_CLIENT_MEMORY'],
    unset: 'half of the heap that Node may use',
    doc: 'How much memory all clients together may make the daemon use: connections, streams, names and unread answers.',
    allowed: 'a size such as 512MiB or 2GiB, from 16MiB to 1024GiB',
    example: '512MiB',
    parse: size,
  }),
  rootAckTimeout: required({
    key: 'rootAckTimeout',
    placeholder: '<duration>',
    variables: ['SDSD_ROOT_ACK_TIMEOUT'],
    default: '10s',
    doc: 'How long a certificate under a new root waits until all of Envoy has acknowledged that root.',
    ...duration(0, 3_600_000),
  }),
  caTimeout: required({
    key: 'caTimeout',
    placeholder: '<duration>',
    variables: ['SDSD_CA_TIMEOUT'],
    default: '10s',
    doc: 'How long the CA may take to answer before an attempt counts as failed.',
    ...duration(100, 3_600_000),
  }),
  logLevel: required({
    key: 'logLevel',
    flag: '--log-level',
    placeholder: '<level>',
    variables: ['SDSD_LOG_LEVEL'],
    default: 'info',
    doc: 'Least level that is logged.',
    allowed: 'debug, info, warn or error',
    parse: logLevel,
  }),
};

/** All settings, for help texts and for whoever looks one up by its key. */
export const settingList: readonly Setting[] = Object.values(settings);

/** How several values of a list setting are written. */
export const LIST_SYNTAX =
  'Several: repeat the flag, separate by commas in the variable, write a map (name: spiffe-id) or a sequence in the file.';

/** A file for `--config`. */
export const EXAMPLE_FILE = `socket: /run/sdsd/sds.sock
socketMode: 0660
stateDir: /var/lib/sdsd
trustDomain: example.org
secretTtl: 1h
gracePeriodRatio: 0.5
identities:
  web: spiffe://example.org/ns/shop/sa/web
  api: spiffe://example.org/ns/shop/sa/api
`;

/** The default as a person reads it. */
export function defaultText(setting: Setting): string {
  return setting.kind === 'required' ? setting.default : setting.unset;
}

function path(text: string, { cwd }: ParseContext): string {
  if (text === '') throw new Error('a path must not be empty');
  if (text.includes('\0')) throw new Error('a path must not hold a NUL character');
  if (text.includes('-----BEGIN ')) throw new Error('this is PEM data: the path of a file is needed');
  return isAbsolute(text) ? resolve(text) : resolve(cwd, text);
}

function socketMode(text: string): number {
  if (!/^(?:0o?)?[0-7]{3}$/.test(text)) throw new Error('it is not an octal number of three digits');
  const mode = Number.parseInt(text.replace(/^0o/, ''), 8);
  if ((mode & 0o600) !== 0o600) throw new Error('the owner must be able to read and write');
  return mode;
}

function trustDomain(text: string): string {
  const fault = trustDomainFault(text);
  if (fault) throw new Error(fault.what.replace(/^its trust domain /, 'it '));
  return text;
}

function pathSegment(text: string): string {
  if (text === '') throw new Error('it is empty');
  if (text.length > 253) throw new Error(`it has ${text.length} characters`);
  const other = /[^A-Za-z0-9._-]/u.exec(text)?.[0];
  if (other !== undefined) {
    throw new Error(`it holds ${JSON.stringify(other)}, a character that a part of a SPIFFE ID cannot have`);
  }
  if (text === '.' || text === '..') throw new Error('a part of a SPIFFE ID cannot be "." or ".."');
  return text;
}

const TAKEN_NAMES = new Set(['default', 'rootca']);
const TAKEN_SCHEMES = /^(?:file-cert|file-root|kubernetes|kubernetes-gateway|configmap|builtin|invalid|sds):/i;

function namedIdentity(text: string): NamedIdentity {
  const split = text.indexOf('=');
  if (split === -1 && !text.startsWith('spiffe://')) throw new Error('there is no "=" between a name and a SPIFFE ID');
  const name = split === -1 ? text : text.slice(0, split).trim();
  const spiffeId = split === -1 ? text : text.slice(split + 1).trim();
  let path: string;
  try {
    ({ path } = parseSpiffeId(spiffeId));
  } catch (error) {
    throw new Error(messageOf(error));
  }
  if (path === '') throw new Error(`${spiffeId} has no path: it is a trust domain, and no workload`);
  checkResourceName(name, spiffeId);
  return Object.freeze({ name, spiffeId });
}

function checkResourceName(name: string, spiffeId: string): void {
  if (name === spiffeId) return;
  if (name === '') throw new Error('the name is empty');
  if (name.startsWith('spiffe://')) throw new Error('a name that is a SPIFFE ID must stand for itself');
  if (TAKEN_NAMES.has(name.toLowerCase())) throw new Error(`the name ${name} has a fixed meaning`);
  if (TAKEN_SCHEMES.test(name)) throw new Error('names that begin like this have a fixed meaning');
  if (name.length > 253) throw new Error(`the name has ${name.length} characters`);
  const other = /[^A-Za-z0-9._/-]/u.exec(name)?.[0];
  if (other !== undefined)
    throw new Error(`the name holds ${JSON.stringify(other)}, a character that a name cannot have`);
  if (name.split('/').includes('')) throw new Error('the name has a slash at its begin or end, or two in a row');
}

/** The parser and the words for a duration between two bounds, in milliseconds. */
function duration(least: number, most: number): { allowed: string; parse: (text: string) => number } {
  return {
    allowed: `a duration such as 24h, 1h30m or 300ms, from ${formatDuration(least)} to ${formatDuration(most)}`,
    parse(text) {
      const ms = parseDuration(text);
      if (ms < least) throw new Error(`it is shorter than ${formatDuration(least)}`);
      if (ms > most) throw new Error(`it is longer than ${formatDuration(most)}`);
      return ms;
    },
  };
}

function ratio(text: string): number {
  if (!/^(?:\d+\.?\d*|\.\d+)$/.test(text)) throw new Error('it is not a plain decimal number');
  const value = Number(text);
  if (value > 1) throw new Error('it is greater than 1');
  return value;
}

function wholeNumber(least: number, most: number): (text: string) => number {
  return (text) => {
    if (!/^\d{1,15}$/.test(text)) throw new Error('it is not a whole number');
    const value = Number(text);
    if (value < least) throw new Error(`it is smaller than ${least}`);
    if (value > most) throw new Error(`it is larger than ${most}`);
    return value;
  };
}

/** In bytes. */
function size(text: string): number {
  const match = /^(\d{1,9})(MiB|GiB)$/.exec(text);
  if (!match) throw new Error('it is not a whole number with the unit MiB or GiB');
  const mebibytes = Number(match[1]) * (match[2] === 'GiB' ? 1_024 : 1);
  if (mebibytes < 16) throw new Error('it is smaller than 16MiB');
  if (mebibytes > 1_024 * 1_024) throw new Error('it is larger than 1024GiB');
  return mebibytes * 1_024 * 1_024;
}

const TRUE = new Set(['1', 't', 'T', 'true', 'True', 'TRUE']);
const FALSE = new Set(['0', 'f', 'F', 'false', 'False', 'FALSE']);

function bool(text: string): boolean {
  if (TRUE.has(text)) return true;
  if (FALSE.has(text)) return false;
  throw new Error('it is neither true nor false');
}

function rsaKeySize(text: string): 2048 | 3072 | 4096 {
  switch (text) {
    case '2048':
      return 2048;
    case '3072':
      return 3072;
    case '4096':
      return 4096;
    default:
      throw new Error('RSA keys of this size are not offered');
  }
}

function eccSignatureAlgorithm(text: string): 'ECDSA' {
  if (text === 'ECDSA') return text;
  if (/^ed-?25519$/i.test(text)) throw new Error('Envoy never completes mutual TLS with an Ed25519 key');
  throw new Error('there is no such algorithm for workload keys');
}

function eccCurve(text: string): 'P-256' | 'P-384' {
  switch (text) {
    case 'P256':
    case 'P-256':
      return 'P-256';
    case 'P384':
    case 'P-384':
      return 'P-384';
    default:
      throw new Error('keys on this curve are not offered');
  }
}

function logLevel(text: string): LogLevel {
  const level = logLevels.find((candidate) => candidate === text);
  if (level === undefined) throw new Error('there is no such level');
  return level;
}
