/** Answers what the control socket asks, from the parts of a running daemon. */

import { type Clock, isoSeconds } from '../clock.js';
import type { Config } from '../config/index.js';
import { SdsdError } from '../errors.js';
import type { Logger } from '../log.js';
import { joinPem, parseSpiffeId, pathValidity, pemBlocks } from '../pki/index.js';
import type { SdsServer, StreamStatus } from '../sds/index.js';
import {
  type Anchor,
  type CaClient,
  type CachingSecretManager,
  WORKLOAD_NAME,
  type WorkloadStatus,
} from '../secrets/index.js';
import { productVersion } from '../version.js';
import type {
  DaemonControl,
  DaemonStatus,
  IssueRequest,
  IssueResult,
  RootStatus,
  SecretStatus,
} from './daemon-control.js';

/** Who signs. One that is inside the daemon can also replace its root. */
export interface DaemonCa extends CaClient {
  rotateRoot?(): Promise<void>;
}

export interface DaemonParts {
  readonly config: Config;
  readonly ca: DaemonCa;
  readonly manager: CachingSecretManager;
  readonly sds: SdsServer;
  readonly clock: Clock;
  readonly startedAt: number;
  readonly log: Logger;
  /** Fires when the daemon is closed. */
  readonly closed: AbortSignal;
}

/** Characters: what a command says of itself in the log. */
const MAX_REQUESTER = 200;

/** What the control socket can ask of a daemon that is made of these parts. */
export function daemonControl(parts: DaemonParts): DaemonControl {
  const { ca, manager, log, closed: signal } = parts;
  const mustBeOpen = (): void => {
    if (!signal.aborted) return;
    throw new SdsdError('ERR_SDSD_CONTROL', 'the daemon is closed', { hint: 'start another one' });
  };
  return {
    status() {
      mustBeOpen();
      return statusOf(parts);
    },
    async rotate(name) {
      mustBeOpen();
      const secrets = await manager.rotate(name);
      return {
        rotated: secrets.map(({ name, serialNumber, notAfter }) => ({
          name,
          serialNumber,
          notAfter: isoSeconds(notAfter),
        })),
      };
    },
    async rotateRoot() {
      mustBeOpen();
      if (!ca.rotateRoot) {
        throw new SdsdError('ERR_SDSD_CA', `sdsd cannot replace the root of ${ca.description}`, {
          hint: 'replace it there: sdsd follows, old and new roots side by side',
        });
      }
      await ca.rotateRoot();
      const roots = (await ca.roots(signal)) ?? [];
      const [root] = roots;
      if (!root)
        throw new SdsdError('ERR_SDSD_CA', `${ca.description} names no root`, { hint: 'see the log of the CA' });
      // First the anchors, then the certificates that need them: the SDS server holds these back until clients have those.
      manager.declareRoots(roots);
      // Whoever fails now is asked for again like any other renewal.
      manager
        .rotate()
        .catch((error: unknown) => log.warn('not every certificate is under the new root yet', { error }));
      return { fingerprint: root.fingerprint, notAfter: isoSeconds(root.notAfter) };
    },
    async issue(request) {
      mustBeOpen();
      return issue(parts, request, signal);
    },
    async roots() {
      mustBeOpen();
      return { pem: joinPem(manager.roots.map(({ pem }) => pem)).toString() };
    },
  };
}

async function issue(
  { ca, manager, config, clock, log }: DaemonParts,
  request: IssueRequest,
  signal: AbortSignal,
): Promise<IssueResult> {
  const { trustDomain, path, text: identity } = parseSpiffeId(request.identity);
  if (path === '') {
    throw new SdsdError('ERR_SDSD_SPIFFE_ID', `${identity} has no path: it is a trust domain, and no workload`, {
      hint: `name a workload, such as ${identity}/ns/default/sa/ops`,
    });
  }
  if (trustDomain !== config.identity.trustDomain && !request.foreignTrustDomain) {
    throw new SdsdError(
      'ERR_SDSD_SPIFFE_ID',
      `${identity} is not of this daemon's trust domain, ${config.identity.trustDomain}`,
      { hint: 'correct it, or say with --foreign-trust-domain that it is meant so' },
    );
  }
  const block = pemBlocks(Buffer.from(request.csrPem)).find(({ label }) => label.endsWith('CERTIFICATE REQUEST'));
  if (!block) {
    throw new SdsdError('ERR_SDSD_CSR', 'the request holds no CERTIFICATE REQUEST block', {
      hint: 'send a PKCS#10 request in PEM',
    });
  }
  const ttl = request.ttlMs ?? config.certificates.ttl;
  const since = manager.declarations;
  const { chain, roots } = await ca.sign({ csr: block.der, sans: [identity], ttl }, signal);
  const { notAfter } = pathValidity({ chain, roots, now: clock.now() });
  manager.admit(roots, notAfter, since);
  log.info('certificate issued by hand', {
    identity,
    serial: chain[0]?.serialNumber,
    until: isoSeconds(notAfter),
    by: request.requester?.slice(0, MAX_REQUESTER),
  });
  return {
    chainPem: joinPem(chain.map(({ pem }) => pem)).toString(),
    rootsPem: joinPem(manager.roots.map(({ pem }) => pem)).toString(),
    askedTtlMs: ttl,
  };
}

function statusOf({ config, ca, manager, sds, startedAt }: DaemonParts): DaemonStatus {
  const workloads = manager.workloads().toSorted(byName);
  const caEnds = workloads.flatMap(({ secret }) => (secret ? [secret.issuersNotAfter] : []));
  const failing = workloads.find(({ state }) => state.failures > 0);
  return {
    version: productVersion(),
    pid: process.pid,
    startedAt: isoSeconds(startedAt),
    socket: config.socket,
    stateDir: config.stateDir,
    ca: {
      description: ca.description,
      state: failing ? 'failing' : 'ready',
      lastError: failing?.state.lastError ?? null,
      notAfter: caEnds.length > 0 ? isoSeconds(Math.min(...caEnds)) : null,
    },
    secrets: [...workloads.map(workloadStatus), bundleStatus(manager)],
    roots: manager.bundle.anchors.map(rootStatus),
    subscribers: sds
      .streams()
      .toSorted(byConnection)
      .map(({ connectionId, nodeId, variant, names }) => ({
        connectionId,
        nodeId,
        variant,
        names: names.map(({ name, sentVersion, ackedVersion, lastNack = null }) => ({
          name,
          sentVersion: versionText(sentVersion),
          ackedVersion: versionText(ackedVersion),
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
    notBefore: secret ? isoSeconds(secret.notBefore) : null,
    notAfter: secret ? isoSeconds(secret.notAfter) : null,
    renewAt: state.lifetime ? isoSeconds(state.nextAt) : null,
    version: versionText(secret?.version),
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
    notAfter: secret ? isoSeconds(secret.notAfter) : null,
    renewAt: null,
    version: versionText(secret?.version),
    source: secret?.source ?? null,
    subscribers,
    lastError: null,
    failures: 0,
  };
}

function rootStatus({ certificate, current, neededUntil }: Anchor): RootStatus {
  return {
    fingerprint: certificate.fingerprint,
    subject: certificate.x509.subject.split('\n').join(', '),
    notAfter: isoSeconds(certificate.notAfter),
    current,
    neededUntil: current ? null : isoSeconds(neededUntil),
  };
}

/** `default` before all others. */
function byName(a: WorkloadStatus, b: WorkloadStatus): number {
  if (a.name === WORKLOAD_NAME || b.name === WORKLOAD_NAME) return a.name === WORKLOAD_NAME ? -1 : 1;
  return a.name < b.name ? -1 : 1;
}

/** In the order in which they came. */
function byConnection(a: StreamStatus, b: StreamStatus): number {
  return a.connectionId.localeCompare(b.connectionId, 'en', { numeric: true });
}

function versionText(version: number | undefined): string | null {
  return version === undefined ? null : String(version);
}
