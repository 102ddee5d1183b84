import { resolve } from 'node:path';
import { messageOf, SdsdError } from '../errors.js';
import { workloadIdentity } from '../pki/spiffe-id.js';
import type { CaConfig, CertificateConfig, Config, KeyConfig, LocalCaFiles, WorkloadIdentityConfig } from './config.js';
import { nearest } from './nearest.js';
import {
  type ListSetting,
  type OptionalSetting,
  type ParseContext,
  type RequiredSetting,
  type Setting,
  settingList,
  settings,
} from './settings.js';
import { type FileValues, readYamlFile } from './yaml-file.js';

/** Values of flags, by the key of their setting. */
export type FlagValues = Readonly<Record<string, string | readonly string[] | undefined>>;

export interface ConfigSources {
  readonly flags: FlagValues;
  /** The value of `--config`: a YAML file, absolute or below `cwd`. */
  readonly file?: string | undefined;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Relative paths, in the file too, are below this directory. */
  readonly cwd: string;
}

/** What commands that talk to a running daemon need. */
export type ClientConfig = Pick<Config, 'socket' | 'controlSocket'> & Pick<WorkloadIdentityConfig, 'trustDomain'>;

/**
 * The configuration: a flag counts before the environment, the environment before the file, the file before the default.
 * Throws ERR_SDSD_CONFIG for the first value that cannot be used; nothing is opened or created but the file read.
 */
export async function loadConfig(sources: ConfigSources): Promise<Config> {
  const values = await openSources(sources);
  return deepFreeze({
    workingDirectory: sources.cwd,
    socket: values.required(settings.socket),
    socketMode: values.required(settings.socketMode),
    stateDir: values.required(settings.stateDir),
    stateKeyFile: values.optional(settings.stateKeyFile),
    controlSocket: values.required(settings.controlSocket),
    identity: identityConfig(values),
    identities: values.list(settings.identities),
    certificates: certificateConfig(values),
    ca: caConfig(values, sources.env),
    keys: keyConfig(values),
    maxIdleNames: values.required(settings.maxIdleNames),
    rootAckTimeout: values.required(settings.rootAckTimeout),
    caTimeout: values.required(settings.caTimeout),
    limits: {
      connections: values.required(settings.maxConnections),
      streams: values.required(settings.maxStreams),
      namesPerStream: values.required(settings.maxNamesPerStream),
      clientMemory: values.optional(settings.maxClientMemory),
    },
    logLevel: values.required(settings.logLevel),
  });
}

/** The part of the configuration that clients of the daemon need: what else is configured may be wrong. */
export async function loadClientConfig(sources: ConfigSources): Promise<ClientConfig> {
  const values = await openSources(sources);
  return {
    socket: values.required(settings.socket),
    controlSocket: values.required(settings.controlSocket),
    trustDomain: values.required(settings.trustDomain),
  };
}

/** The moment of renewal must be after receipt and before the end, whatever the jitter comes to. */
function certificateConfig(values: Values): CertificateConfig {
  const ttl = values.required(settings.secretTtl);
  const gracePeriodRatio = values.required(settings.gracePeriodRatio);
  const gracePeriodRatioJitter = values.required(settings.gracePeriodRatioJitter);
  const given = `${values.origin(settings.gracePeriodRatio)}: ${gracePeriodRatio}, ${values.origin(settings.gracePeriodRatioJitter)}: ${gracePeriodRatioJitter}`;
  if (gracePeriodRatio - gracePeriodRatioJitter <= 0) {
    throw new SdsdError(
      'ERR_SDSD_CONFIG',
      `the grace period ratio is not greater than its jitter (${given}): a certificate could be renewed when it has expired`,
      { hint: 'raise SECRET_GRACE_PERIOD_RATIO above SECRET_GRACE_PERIOD_RATIO_JITTER, or lower the jitter' },
    );
  }
  if (gracePeriodRatio + gracePeriodRatioJitter >= 1) {
    throw new SdsdError(
      'ERR_SDSD_CONFIG',
      `the grace period ratio and its jitter are together not less than 1 (${given}): a certificate would be renewed all the time`,
      { hint: 'lower SECRET_GRACE_PERIOD_RATIO; 0.5 renews when half of the lifetime is left' },
    );
  }
  return { ttl, gracePeriodRatio, gracePeriodRatioJitter };
}

function identityConfig(values: Values): WorkloadIdentityConfig {
  const trustDomain = values.required(settings.trustDomain);
  const namespace = values.required(settings.namespace);
  const serviceAccount = values.required(settings.serviceAccount);
  return { trustDomain, namespace, serviceAccount, spiffeId: workloadIdentity(trustDomain, namespace, serviceAccount) };
}

function caConfig(values: Values, env: ConfigSources['env']): CaConfig {
  const provider = values.optional(settings.caProvider);
  const address = values.optional(settings.caAddr);
  if (provider === undefined && address !== undefined) {
    throw new SdsdError(
      'ERR_SDSD_CONFIG',
      `${values.origin(settings.caAddr)} names a CA, ${JSON.stringify(address)}, and this version of sdsd has only its own local CA`,
      { hint: 'set CA_PROVIDER=local to use the local CA all the same, or unset CA_ADDR' },
    );
  }
  if (provider === undefined && (env['KUBERNETES_SERVICE_HOST'] ?? '') !== '') {
    throw new SdsdError(
      'ERR_SDSD_CONFIG',
      'in Kubernetes (KUBERNETES_SERVICE_HOST is set) no CA is chosen unasked, and neither CA_PROVIDER nor CA_ADDR is set',
      { hint: 'set CA_PROVIDER=local to have certificates signed by the local CA, which only this daemon knows' },
    );
  }
  if (provider !== undefined && provider !== 'local') {
    throw new SdsdError(
      'ERR_SDSD_CONFIG',
      `${values.origin(settings.caProvider)} is ${JSON.stringify(provider)}, and this version of sdsd has only its own local CA (allowed: local)`,
      { hint: 'set CA_PROVIDER=local' },
    );
  }
  return { provider: 'local', files: caFiles(values), intermediate: values.required(settings.caIntermediate) };
}

function caFiles(values: Values): LocalCaFiles | undefined {
  const cert = values.optional(settings.caCertFile);
  const key = values.optional(settings.caKeyFile);
  const root = values.optional(settings.caRootFile);
  if (cert !== undefined && key !== undefined) return { cert, key, root };
  if (cert === undefined && key === undefined && root === undefined) return undefined;
  const given = [settings.caCertFile, settings.caKeyFile, settings.caRootFile]
    .filter((setting) => values.optional(setting) !== undefined)
    .map((setting) => values.origin(setting));
  throw new SdsdError(
    'ERR_SDSD_CONFIG',
    `an own CA needs both its certificate (SDSD_CA_CERT) and its key (SDSD_CA_KEY); given: ${given.join(', ')}`,
    { hint: 'set both, or none to let the local CA make its own' },
  );
}

function keyConfig(values: Values): KeyConfig {
  const bits = values.optional(settings.rsaKeySize);
  const curve = values.required(settings.eccCurve);
  const wantsEcdsa = values.optional(settings.eccSignatureAlgorithm) !== undefined;
  return {
    spec: bits === undefined || wantsEcdsa ? { kind: 'ecdsa', curve } : { kind: 'rsa', bits },
    encoding: values.required(settings.pkcs8Key) ? 'pkcs8' : 'traditional',
  };
}

/** A value as somebody wrote it. */
interface Item {
  readonly text: string;
  /** For messages: "flag --socket", "environment variable SDS_SOCKET", "sdsd.yaml:3: socket". */
  readonly origin: string;
  readonly variable: string | undefined;
  /** How another value is written in the same place. */
  readonly spelled: (value: string) => string;
}

interface Values {
  required<T>(setting: RequiredSetting<T>): T;
  optional<T>(setting: OptionalSetting<T>): T | undefined;
  list<T>(setting: ListSetting<T>): readonly T[];
  /** Where the value in force comes from. */
  origin(setting: Setting): string;
}

async function openSources(sources: ConfigSources): Promise<Values> {
  for (const key of Object.keys(sources.flags)) checkKey(key);
  const path = sources.file === undefined ? undefined : resolve(sources.cwd, sources.file);
  const file = path === undefined ? undefined : { path, values: await readYamlFile(path) };
  const find = (setting: Setting): readonly Item[] => findItems(setting, sources, file);
  const parse = <T>(setting: Setting, parser: (text: string, context: ParseContext) => T, item: Item): T => {
    try {
      return parser(item.text, { cwd: sources.cwd, variable: item.variable });
    } catch (error) {
      throw refusal(setting, item, messageOf(error));
    }
  };
  return {
    required(setting) {
      const item = find(setting)[0] ?? defaultItem(setting);
      return parse(setting, setting.parse, item);
    },
    optional(setting) {
      const item = find(setting)[0];
      return item && parse(setting, setting.parse, item);
    },
    list(setting) {
      const items = find(setting);
      const names = new Set<string>();
      return items.map((item) => {
        const value = parse(setting, setting.parse, item);
        const name = setting.nameOf(value);
        if (names.has(name)) throw refusal(setting, item, `the name ${name} is given twice`, 'give each name once');
        names.add(name);
        return value;
      });
    },
    origin: (setting) => find(setting)[0]?.origin ?? 'the default',
  };
}

/** A flag that nobody would read is a mistake of whoever gives it. */
function checkKey(key: string): void {
  const keys = settingList.map((setting) => setting.key);
  if (keys.includes(key)) return;
  const near = nearest(key, keys);
  throw new SdsdError('ERR_SDSD_CONFIG', `there is no setting ${JSON.stringify(key)}`, {
    hint: near === undefined ? `the settings are ${keys.join(', ')}` : `did you mean ${near}?`,
  });
}

function findItems(
  setting: Setting,
  { flags, env }: ConfigSources,
  file: { path: string; values: FileValues } | undefined,
): readonly Item[] {
  const flag = flags[setting.key];
  if (flag !== undefined) {
    const origin = `flag ${setting.flag ?? setting.key}`;
    const spelled = (value: string): string => `${setting.flag ?? setting.key} ${value}`;
    return (typeof flag === 'string' ? [flag] : flag).map((text) => ({ text, origin, variable: undefined, spelled }));
  }
  for (const variable of setting.variables) {
    const value = env[variable];
    if (value === undefined || (value === '' && !setting.refuseEmpty)) continue;
    const texts = setting.kind === 'list' ? splitList(value) : [value];
    const spelled = (value: string): string => `${variable}=${value}`;
    return texts.map((text) => ({ text, origin: `environment variable ${variable}`, variable, spelled }));
  }
  const inFile = file?.values.get(setting.key);
  if (!file || !inFile) return [];
  return inFile.map(({ text, line }) => ({
    text,
    origin: `${file.path}:${line}: ${setting.key}`,
    variable: undefined,
    spelled: (value) => (setting.kind === 'list' ? `${setting.key}: [${value}]` : `${setting.key}: ${value}`),
  }));
}

function defaultItem(setting: RequiredSetting<unknown>): Item {
  return { text: setting.default, origin: 'the default', variable: undefined, spelled: (value) => value };
}

function splitList(text: string): readonly string[] {
  return text
    .split(',')
    .map((part) => part.trim())
    .filter((part) => part !== '');
}

function refusal(setting: Setting, item: Item, why: string, hint?: string): SdsdError {
  return new SdsdError('ERR_SDSD_CONFIG', `${item.origin} cannot be ${shown(item.text)}: ${why}`, {
    hint: hint ?? `${item.spelled(setting.example)} (allowed: ${setting.allowed})`,
  });
}

/** A value for a message. PEM in the place of a path may be a key, so it is never shown. */
function shown(text: string): string {
  if (text.includes('-----BEGIN ')) return 'PEM data';
  return JSON.stringify(text.length > 120 ? `${text.slice(0, 120)}…` : text);
}

function deepFreeze<T>(value: T): T {
  if (typeof value === 'object' && value !== null && !Object.isFrozen(value)) {
    Object.freeze(value);
    for (const part of Object.values(value)) deepFreeze(part);
  }
  return value;
}
