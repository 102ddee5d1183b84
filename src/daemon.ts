/** Joins the parts, in the one order in which they start and stop. */
import { join } from 'node:path';
import type {
  ControlServer,
  DaemonControl,
  DaemonStatus,
  IssueRequest,
  IssueResult,
  SecretStatus,
} from './admin/index.js';
import { type LocalCa, openLocalCa } from './ca/index.js';
import { type Clock, systemClock } from './clock.js';
import type { Config } from './config/index.js';
import { SdsdError } from './errors.js';
import type { Logger } from './log.js';
import { chainNotAfter, joinPem, parseSpiffeId, pemBlocks } from './pki/index.js';
import { RpcServer, type UnixListener } from './rpc/index.js';
import { SdsServer } from './sds/index.js';
import type { TlsCertificateSecret, WorkloadStatus } from './secrets/index.js';
import { CachingSecretManager, caIdentitySource, trustBundleFile, WORKLOAD_NAME } from './secrets/index.js';
import { openStateDirectory, type StateDirectory } from './state-directory.js';
import { productVersion } from './version.js';

/** How long streams that were ended may take to be delivered before their connections are cut. */
const DRAIN_MS = 500;

export interface DaemonOptions {
  readonly config: Config;
  readonly log: Logger;
  /** Default: the system's clock. */
  readonly clock?: Clock;
}

/** A daemon that serves. */
export interface Daemon {
  /** Where Envoy finds it. */
  readonly socket: string;
  readonly control: DaemonControl;
  /** Resolves with the first workload certificate as soon as there is one. */
  readonly ready: Promise<TlsCertificateSecret>;
  /** Stops it; resolves when everything is closed and stored. Any number of calls is one. */
  close(): Promise<void>;
}

/** Starts a daemon. Rejects with an SdsdError, and then nothing is left open. */
export async function createDaemon({ config, log, clock = systemClock }: DaemonOptions): Promise<Daemon> {
  const closing: (() => unknown)[] = [];
  try {
    return await assemble(config, log, clock, closing);
  } catch (error) {
    await closeAll(closing);
    throw error;
  }
}

async function assemble(config: Config, log: Logger, clock: Clock, closing: (() => unknown)[]): Promise<Daemon> {
  const startedAt = clock.now();
  const state: StateDirectory = await openStateDirectory(config.stateDir);
  closing.push(() => state.unlock());

  const ca = await openCa(config, clock);
  closing.push(() => ca.close());

  const manager = await openManager(config, ca, log, clock);
  closing.push(() => manager.close());

  const sds = new SdsServer({ manager, clock, log, ackTimeoutMs: config.rootAckTimeout });
  const rpc = new RpcServer({ onFault: (path, error) => log.error('a call failed', { method: path, error }) });
  sds.register(rpc);
  closing.push(() => {
    sds.close();
    return rpc.close(DRAIN_MS);
  });
  const listener = await rpc.listen({
    path: config.socket,
    mode: config.socketMode,
    onMute: (path) =>
      log.warn('a socket was in the way whose server answered nothing; it was replaced', { socket: path }),
  });
  closing.push(() => listener.close());

  const control = controlOf({ config, ca, manager, sds, clock, startedAt });
  const ready = firstCertificate(manager);
  // The first secret does not wait for the control socket.
  const { startControlServer } = await import('./admin/index.js');
  const controlServer: ControlServer = await startControlServer({ path: config.controlSocket, daemon: control, log });
  closing.push(() => controlServer.close());

  let closed: Promise<void> | undefined;
  return {
    socket: (listener satisfies UnixListener).path,
    control,
    ready,
    close: () => {
      closed ??= closeAll(closing);
      return closed;
    },
  };
}

/** Last opened, first closed. */
async function closeAll(closing: (() => unknown)[]): Promise<void> {
  for (let close = closing.pop(); close; close = closing.pop()) await close();
}

function openCa(config: Config, clock: Clock): Promise<LocalCa> {
  const { files, intermediate } = config.ca;
  return openLocalCa({
    directory: join(config.stateDir, 'ca'),
    trustDomain: config.identity.trustDomain,
    clock,
    intermediate,
    ...(files && {
      files: { certificate: files.cert, key: files.key, ...(files.root !== undefined && { root: files.root }) },
    }),
  });
}

async function openManager(config: Config, ca: LocalCa, log: Logger, clock: Clock): Promise<CachingSecretManager> {
  const { certificates, identity, identities, keys, maxIdleNames } = config;
  const manager = new CachingSecretManager({
    source: caIdentitySource({ ca, algorithm: keys.spec, encoding: keys.encoding, ttl: certificates.ttl }),
    store: trustBundleFile(join(config.stateDir, 'trust-bundle.json')),
    identities: new Map([
      [WORKLOAD_NAME, identity.spiffeId],
      ...identities.map(({ name, spiffeId }) => [name, spiffeId] as const),
    ]),
    pinned: [WORKLOAD_NAME],
    renewal: certificates,
    ttl: certificates.ttl,
    maxIdleNames,
    clock,
    log,
  });
  await manager.start();
  return manager;
}

/** Waits for the workload certificate, through failures, until the manager closes. */
function firstCertificate(manager: CachingSecretManager): Promise<TlsCertificateSecret> {
  return new Promise((resolve) => {
    const caller = { connectionId: 'daemon', nodeId: 'sdsd' };
    const lease = manager.subscribe(WORKLOAD_NAME, caller, (result) => {
      if (result.kind !== 'secret' || result.secret.kind !== 'tls-certificate') return;
      resolve(result.secret);
      queueMicrotask(() => lease.close());
    });
  });
}

interface Parts {
  readonly config: Config;
  readonly ca: LocalCa;
  readonly manager: CachingSecretManager;
  readonly sds: SdsServer;
  readonly clock: Clock;
  readonly startedAt: number;
}

function controlOf(parts: Parts): DaemonControl {
  const { ca, manager } = parts;
  const signal = new AbortController().signal;
  return {
    status: () => statusOf(parts),
    async rotate(name) {
      const secrets = await manager.rotate(name);
      return {
        rotated: secrets.map(({ name, serialNumber, notAfter }) => ({ name, serialNumber, notAfter: iso(notAfter) })),
      };
    },
    async rotateRoot() {
      await ca.rotateRoot();
      const roots = (await ca.roots(signal)) ?? [];
      const [root] = roots;
      if (!root) throw new SdsdError('ERR_SDSD_CA', 'the CA names no root');
      // First the anchors, then the certificates that need them: the SDS server holds these back until clients have those.
      manager.declareRoots(roots);
      await manager.rotate();
      return { fingerprint: root.fingerprint, notAfter: iso(root.notAfter) };
    },
    issue: (request) => issue(parts, request, signal),
    async roots() {
      return { pem: joinPem(manager.roots.map(({ pem }) => pem)).toString() };
    },
  };
}

async function issue({ ca, manager, config }: Parts, request: IssueRequest, signal: AbortSignal): Promise<IssueResult> {
  const identity = parseSpiffeId(request.identity).text;
  const block = pemBlocks(Buffer.from(request.csrPem)).find(({ label }) => label.endsWith('CERTIFICATE REQUEST'));
  if (!block) {
    throw new SdsdError('ERR_SDSD_CSR', 'the request holds no CERTIFICATE REQUEST block', {
      hint: 'send a PKCS#10 request in PEM',
    });
  }
  const ttl = request.ttlMs ?? config.certificates.ttl;
  const { chain, roots } = await ca.sign({ csr: block.der, sans: [identity], ttl }, signal);
  manager.noteGranted(roots, chainNotAfter(chain));
  return {
    chainPem: joinPem(chain.map(({ pem }) => pem)).toString(),
    rootsPem: joinPem(manager.roots.map(({ pem }) => pem)).toString(),
  };
}

function statusOf({ config, ca, manager, sds, startedAt }: Parts): DaemonStatus {
  const workloads = manager.workloads();
  const failing = workloads.find(({ state }) => state.failures > 0);
  return {
    version: productVersion(),
    pid: process.pid,
    startedAt: iso(startedAt),
    socket: config.socket,
    stateDir: config.stateDir,
    ca: {
      description: ca.description,
      state: failing ? 'failing' : 'ready',
      lastError: failing?.state.lastError ?? null,
    },
    secrets: [...workloads.map(workloadStatus), bundleStatus(manager)],
    subscribers: sds.streams().map(({ connectionId, nodeId, variant, names }) => ({
      connectionId,
      nodeId,
      variant,
      names: names.map(({ name, sentVersion = null, ackedVersion = null, lastNack = null }) => ({
        name,
        sentVersion,
        ackedVersion,
        lastNack,
      })),
    })),
    unknownNames: manager.unknownNames(),
  };
}

function workloadStatus({ name, identity, state, secret, subscribers }: WorkloadStatus): SecretStatus {
  return {
    name,
    kind: 'tls-certificate',
    state: state.kind,
    identity,
    serialNumber: secret?.serialNumber ?? null,
    notBefore: secret ? iso(secret.notBefore) : null,
    notAfter: secret ? iso(secret.notAfter) : null,
    renewAt: state.lifetime ? iso(state.nextAt) : null,
    version: secret?.version ?? null,
    source: secret?.source ?? null,
    subscribers,
    lastError: state.lastError ?? null,
    failures: state.failures,
  };
}

function bundleStatus(manager: CachingSecretManager): SecretStatus {
  const { secret, subscribers } = manager.bundle;
  return {
    name: 'ROOTCA',
    kind: 'validation-context',
    state: secret ? 'available' : 'initializing',
    identity: null,
    serialNumber: null,
    notBefore: null,
    notAfter: secret ? iso(secret.notAfter) : null,
    renewAt: null,
    version: secret?.version ?? null,
    source: secret?.source ?? null,
    subscribers,
    lastError: null,
    failures: 0,
  };
}

function iso(time: number): string {
  return new Date(time).toISOString();
}
