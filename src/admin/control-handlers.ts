/** Answers what the control socket asks, from the parts of a running daemon. */

import type { Clock } from '../clock.js';
import type { Config } from '../config/index.js';
import { SdsdError } from '../errors.js';
import type { Logger } from '../log.js';
import { joinPem, parseSpiffeId, pathValidity, pemBlocks } from '../pki/index.js';
import type { SdsServer } from '../sds/index.js';
import type { CaClient, CachingSecretManager, WorkloadStatus } from '../secrets/index.js';
import { productVersion } from '../version.js';
import type { DaemonControl, DaemonStatus, IssueRequest, IssueResult, SecretStatus } from './daemon-control.js';

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
}

/** What the control socket can ask of a daemon that is made of these parts. */
export function daemonControl(parts: DaemonParts): DaemonControl {
  const { ca, manager, log } = parts;
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
      return { fingerprint: root.fingerprint, notAfter: iso(root.notAfter) };
    },
    issue: (request) => issue(parts, request, signal),
    async roots() {
      return { pem: joinPem(manager.roots.map(({ pem }) => pem)).toString() };
    },
  };
}

async function issue(
  { ca, manager, config, clock }: DaemonParts,
  request: IssueRequest,
  signal: AbortSignal,
): Promise<IssueResult> {
  const identity = parseSpiffeId(request.identity).text;
  const block = pemBlocks(Buffer.from(request.csrPem)).find(({ label }) => label.endsWith('CERTIFICATE REQUEST'));
  if (!block) {
    throw new SdsdError('ERR_SDSD_CSR', 'the request holds no CERTIFICATE REQUEST block', {
      hint: 'send a PKCS#10 request in PEM',
    });
  }
  const ttl = request.ttlMs ?? config.certificates.ttl;
  const since = manager.declarations;
  const { chain, roots } = await ca.sign({ csr: block.der, sans: [identity], ttl }, signal);
  manager.admit(roots, pathValidity({ chain, roots, now: clock.now() }).notAfter, since);
  return {
    chainPem: joinPem(chain.map(({ pem }) => pem)).toString(),
    rootsPem: joinPem(manager.roots.map(({ pem }) => pem)).toString(),
  };
}

function statusOf({ config, ca, manager, sds, startedAt }: DaemonParts): DaemonStatus {
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
