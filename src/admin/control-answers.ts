import type {
  CaStatus,
  DaemonStatus,
  IssueResult,
  RootStatus,
  RootsResult,
  RotatedSecret,
  RotateResult,
  RotateRootResult,
  SecretStatus,
  SubscribedName,
  SubscriberStatus,
  UnknownName,
} from './daemon-control.js';

/** Takes a value apart that came over the wire; throws a TypeError that names the place (`/status.secrets[0].name`). */
export type Reader<T> = (value: unknown, place: string) => T;

const text: Reader<string> = (value, place) => {
  if (typeof value !== 'string') throw new TypeError(`${place} is not a string`);
  return value;
};

const number: Reader<number> = (value, place) => {
  if (typeof value !== 'number') throw new TypeError(`${place} is not a number`);
  return value;
};

const flag: Reader<boolean> = (value, place) => {
  if (typeof value !== 'boolean') throw new TypeError(`${place} is not true or false`);
  return value;
};

/** Absent counts as null. */
function orNull<T>(read: Reader<T>): Reader<T | null> {
  return (value, place) => (value === null || value === undefined ? null : read(value, place));
}

function oneOf<const T extends string>(...words: readonly T[]): Reader<T> {
  return (value, place) => {
    const word = words.find((candidate) => candidate === value);
    if (word === undefined) throw new TypeError(`${place} is not one of ${words.join(', ')}`);
    return word;
  };
}

function listOf<T>(read: Reader<T>): Reader<readonly T[]> {
  return (value, place) => {
    if (!Array.isArray(value)) throw new TypeError(`${place} is not a list`);
    return value.map((item: unknown, index) => read(item, `${place}[${index}]`));
  };
}

/** An object with these fields; others, of newer versions, are left out. */
function shape<T extends object>(fields: { readonly [K in keyof T]-?: Reader<T[K]> }): Reader<T> {
  const readers: [string, Reader<unknown>][] = Object.entries(fields);
  return (value, place) => {
    if (typeof value !== 'object' || value === null) throw new TypeError(`${place} is not an object`);
    const entries = readers.map(([key, read]) => [key, read(Reflect.get(value, key), `${place}.${key}`)]);
    // Each field was read by the reader of its own type.
    return Object.fromEntries(entries) as T;
  };
}

export const daemonStatus = shape<DaemonStatus>({
  version: text,
  pid: number,
  startedAt: text,
  socket: text,
  stateDir: text,
  ca: shape<CaStatus>({
    description: text,
    state: oneOf('ready', 'failing'),
    lastError: orNull(text),
    notAfter: orNull(text),
  }),
  secrets: listOf(
    shape<SecretStatus>({
      name: text,
      kind: oneOf('tls-certificate', 'validation-context'),
      state: oneOf('initializing', 'available', 'unavailable'),
      identity: orNull(text),
      serialNumber: orNull(text),
      notBefore: orNull(text),
      notAfter: orNull(text),
      renewAt: orNull(text),
      version: orNull(text),
      source: orNull(text),
      subscribers: number,
      lastError: orNull(text),
      failures: number,
    }),
  ),
  roots: listOf(
    shape<RootStatus>({
      fingerprint: text,
      subject: text,
      notAfter: text,
      current: flag,
      neededUntil: orNull(text),
    }),
  ),
  subscribers: listOf(
    shape<SubscriberStatus>({
      connectionId: text,
      nodeId: text,
      variant: oneOf('sotw', 'delta'),
      names: listOf(
        shape<SubscribedName>({
          name: text,
          sentVersion: orNull(text),
          ackedVersion: orNull(text),
          lastNack: orNull(text),
        }),
      ),
    }),
  ),
  unknownNames: listOf(shape<UnknownName>({ name: text, count: number })),
});

export const rotateResult = shape<RotateResult>({
  rotated: listOf(shape<RotatedSecret>({ name: text, serialNumber: text, notAfter: text })),
});
export const rotateRootResult = shape<RotateRootResult>({ fingerprint: text, notAfter: text });
export const issueResult = shape<IssueResult>({ chainPem: text, rootsPem: text, askedTtlMs: number });
export const rootsResult = shape<RootsResult>({ pem: text });
