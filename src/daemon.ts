/** Joins the parts, in the one order in which they start and stop. */
import { join } from 'node:path';
import { getHeapStatistics } from 'node:v8';
import { type DaemonCa, daemonControl } from './admin/control-handlers.js';
import type { DaemonControl } from './admin/index.js';
import { type LocalCa, openLocalCa } from './ca/index.js';
import { type Clock, systemClock } from './clock.js';
import type { Config } from './config/index.js';
import { SdsdError } from './errors.js';
import { ClientLog, type Logger } from './log.js';
import { MemoryBudget } from './memory-budget.js';
import { controlPlaneIdentifier, RpcServer } from './rpc/index.js';
import { CONTROL_PLANE_IDENTIFIER, SdsServer } from './sds/index.js';
import {
  CachingSecretManager,
  caIdentitySource,
  encryptedIdentityStore,
  type IdentitySource,
  ROOTS_NAME,
  readStateKey,
  type TlsCertificateSecret,
  trustBundleFile,
  WORKLOAD_NAME,
} from './secrets/index.js';
import { keepListening, lockDirectory } from './sockets/index.js';
import { closedToGroup, openStateDirectory } from './storage/index.js';

/** How long streams that were ended may take to be delivered before their connections are cut. */
const DRAIN_MS = 500;

export interface DaemonOptions {
  readonly config: Config;
  readonly log: Logger;
  /** Default: the system's clock. */
  readonly clock?: Clock;
  /** Signs instead of the CA that the configuration names. The daemon closes it when it is closed itself. */
  readonly ca?: DaemonCa;
  /** Where certificates come from, instead of a key made here and signed by the CA: files, a vault, another agent. */
  readonly source?: IdentitySource;
}

/** A daemon that serves. */
export interface Daemon {
  /** Where Envoy finds it. */
  readonly socket: string;
  readonly control: DaemonControl;
  /** Resolves with the first workload certificate as soon as there is one; rejects if the daemon is closed before. */
  readonly ready: Promise<TlsCertificateSecret>;
  /** Resolves if it can serve no longer, with the reason: another server has taken the socket. */
  readonly failed: Promise<SdsdError>;
  /**
   * Stops it, with the CA that it was given; resolves when everything is closed and stored. Any number of calls is one. After
   * it, `control` refuses with ERR_SDSD_CONTROL.
   */
  close(): Promise<void>;
}

/** Starts a daemon. Rejects with an SdsdError, and then nothing is left open. */
export async function createDaemon({ config, log, clock = systemClock, ca, source }: DaemonOptions): Promise<Daemon> {
  const closing = new Closing(log);
  try {
    return await assemble(config, log, clock, { ca, source }, closing);
  } catch (error) {
    await closing.run();
    throw error;
  }
}

async function assemble(
  config: Config,
  log: Logger,
  clock: Clock,
  given: { readonly ca: DaemonCa | undefined; readonly source: IdentitySource | undefined },
  closing: Closing,
): Promise<Daemon> {
  const startedAt = clock.now();
  let fail: (error: SdsdError) => void = () => undefined;
  const failed = new Promise<SdsdError>((resolve) => {
    fail = resolve;
  });
  const state = await openStateDirectory({
    path: config.stateDir,
    trusted: config.workingDirectory,
    lock: (path) =>
      lockDirectory({
        path,
        clock,
        onLost: (error) =>
          log.error('the lock of the state directory was deleted, and cannot be made again for now', { error }),
        onTaken: (error) => fail(error),
      }),
  });
  closing.add(() => state.unlock());

  const ca = given.ca ?? (await openCa(config, log, clock));
  closing.add(() => ca.close());

  const manager = await newManager(config, ca, given.source, log, clock);
  closing.add(() => manager.close());
  await manager.start();

  const { spec } = config.keys;
  if (spec.kind === 'ecdsa' && spec.curve === 'P-384') {
    log.warn(
      'Envoy refuses P-384 certificates in TLS 1.2 unless it is told otherwise: set ecdh_curves: [P-384], or TLS 1.3, in its tls_params',
    );
  }
  const { limits } = config;
  const clientLog = new ClientLog(log, clock);
  const memory = new MemoryBudget(limits.clientMemory ?? getHeapStatistics().heap_size_limit / 2);
  const sds = new SdsServer({
    manager,
    clock,
    log,
    ackTimeoutMs: config.rootAckTimeout,
    memory,
    maxStreams: limits.streams,
    maxNamesPerStream: limits.namesPerStream,
  });
  const rpc = new RpcServer({
    onFault: (path, error) => log.error('a call failed', { method: path, error }),
    clock,
    maxConnections: limits.connections,
    memory,
    onRefused: (why) => clientLog.warn('all', 'a connection was refused', { why }),
  });
  sds.register(rpc);
  closing.add(() => {
    sds.close();
    return rpc.close(DRAIN_MS);
  });

  const { socket } = config;
  const listener = await keepListening({
    listen: () =>
      rpc
        .listen({
          path: socket,
          mode: config.socketMode,
          setting: '--socket or SDS_SOCKET',
          clock,
        })
        .catch((error: unknown) => nameOwner(socket, error)),
    clock,
    onRestored: () => log.warn('the socket was deleted, and is there again', { socket }),
    onLost: (error) => log.error('the socket was deleted, and cannot be made again for now', { socket, error }),
    onTaken: (error) => fail(error),
  });
  closing.add(() => listener.close());
  const closed =
    config.socketMode & 0o070 ? closedToGroup({ path: socket, trusted: config.workingDirectory }) : undefined;
  if (closed) {
    log.warn("the socket's group cannot reach it: it may not pass a directory above it", { socket, directory: closed });
  }

  const open = new AbortController();
  const control = daemonControl({ config, ca, manager, sds, clock, startedAt, log, closed: open.signal });
  closing.add(() => open.abort());
  const ready = firstCertificate(manager, closing);
  // The first secret does not wait for the control socket.
  const { startControlServer } = await import('./admin/index.js');
  const controlServer = await startControlServer({ path: config.controlSocket, daemon: control, clock, log });
  closing.add(() => controlServer.close());

  return { socket, control, ready, failed, close: () => closing.run() };
}

/** Says who it is that answers on the socket, if that can be found out. */
async function nameOwner(socket: string, error: unknown): Promise<never> {
  if (!(error instanceof SdsdError) || error.code !== 'ERR_SDSD_SOCKET_IN_USE') throw error;
  const identifier = await controlPlaneIdentifier(socket, ROOTS_NAME);
  if (identifier === undefined) throw error;
  const owner =
    identifier === CONTROL_PLANE_IDENTIFIER ? 'another sdsd' : `another SDS server (${identifier.slice(0, 100)})`;
  throw new SdsdError(error.code, `${owner} answers on ${socket}`, {
    ...(error.hint !== undefined && { hint: error.hint }),
    cause: error,
  });
}

/** What is open, and in which order it is closed: the last first. One that fails does not keep the others open. */
class Closing {
  readonly #log: Logger;
  readonly #steps: (() => unknown)[] = [];
  #done: Promise<void> | undefined;

  constructor(log: Logger) {
    this.#log = log;
  }

  add(step: () => unknown): void {
    this.#steps.push(step);
  }

  run(): Promise<void> {
    this.#done ??= this.#closeAll();
    return this.#done;
  }

  async #closeAll(): Promise<void> {
    for (const step of this.#steps.reverse()) {
      try {
        await step();
      } catch (error) {
        this.#log.error('something could not be closed in order', { error });
      }
    }
  }
}

function openCa(config: Config, log: Logger, clock: Clock): Promise<LocalCa> {
  const { files, intermediate } = config.ca;
  return openLocalCa({
    directory: join(config.stateDir, 'ca'),
    trustDomain: config.identity.trustDomain,
    clock,
    intermediate,
    identities: [config.identity.spiffeId, ...config.identities.map(({ spiffeId }) => spiffeId)],
    onWarning: (message) => log.warn(message),
    onStoreError: (error) =>
      log.warn('the local CA cannot renew its intermediate; the present one signs on', { error }),
    ...(files && {
      files: { certificate: files.cert, key: files.key, ...(files.root !== undefined && { root: files.root }) },
    }),
  });
}

async function newManager(
  config: Config,
  ca: DaemonCa,
  source: IdentitySource | undefined,
  log: Logger,
  clock: Clock,
): Promise<CachingSecretManager> {
  const { certificates, identity, identities, keys, maxIdleNames, stateDir, stateKeyFile } = config;
  const key =
    stateKeyFile === undefined
      ? undefined
      : await readStateKey(stateKeyFile, () => {
          log.warn('every user may read the state key: whoever has it can read the stored keys', {
            file: stateKeyFile,
          });
        });
  return new CachingSecretManager({
    source: source ?? caIdentitySource({ ca, algorithm: keys.spec, encoding: keys.encoding, ttl: certificates.ttl }),
    roots: (signal) => ca.roots(signal),
    store: trustBundleFile(join(stateDir, 'trust-bundle.json')),
    ...(key && { identityStore: encryptedIdentityStore({ directory: join(stateDir, 'identities'), key, log }) }),
    identities: new Map([
      [WORKLOAD_NAME, identity.spiffeId],
      ...identities.map(({ name, spiffeId }) => [name, spiffeId] as const),
    ]),
    pinned: [WORKLOAD_NAME],
    renewal: certificates,
    ttl: certificates.ttl,
    maxIdleNames,
    attemptTimeoutMs: config.caTimeout,
    clock,
    log,
  });
}

/** Waits for the workload certificate, through failures. */
function firstCertificate(manager: CachingSecretManager, closing: Closing): Promise<TlsCertificateSecret> {
  const first = new Promise<TlsCertificateSecret>((resolve, reject) => {
    closing.add(() => reject(new SdsdError('ERR_SDSD_CA', 'the daemon was closed before it had a certificate')));
    const caller = { connectionId: 'daemon', nodeId: 'sdsd' };
    const lease = manager.subscribe(WORKLOAD_NAME, caller, (result) => {
      if (result.kind !== 'secret' || result.secret.kind !== 'tls-certificate') return;
      resolve(result.secret);
      // Not at once: the first call comes before there is a lease to close.
      queueMicrotask(() => lease.close());
    });
  });
  // Nobody has to wait for it.
  first.catch(() => undefined);
  return first;
}
