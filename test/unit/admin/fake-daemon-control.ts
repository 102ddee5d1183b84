import type { DaemonControl, DaemonStatus } from '../../../src/admin/index.js';

export const STATUS: DaemonStatus = {
  version: '1.2.3',
  pid: 42,
  startedAt: '2030-01-01T00:00:00Z',
  socket: '/run/sds.sock',
  stateDir: '/var/lib/sdsd',
  ca: { description: 'local CA', state: 'failing', lastError: 'the disk is full', notAfter: '2039-12-30T00:00:00Z' },
  secrets: [
    {
      name: 'default',
      kind: 'tls-certificate',
      state: 'available',
      identity: 'spiffe://cluster.local/ns/default/sa/default',
      serialNumber: '0A1B',
      notBefore: '2030-01-01T00:00:00Z',
      notAfter: '2030-01-02T00:00:00Z',
      renewAt: '2030-01-01T12:00:00Z',
      version: '7',
      source: 'local CA',
      subscribers: 2,
      lastError: 'the disk is full',
      failures: 3,
    },
    {
      name: 'ROOTCA',
      kind: 'validation-context',
      state: 'initializing',
      identity: null,
      serialNumber: null,
      notBefore: null,
      notAfter: null,
      renewAt: null,
      version: null,
      source: null,
      subscribers: 0,
      lastError: null,
      failures: 0,
    },
  ],
  roots: [
    {
      fingerprint: 'ab12'.repeat(16),
      subject: 'O=cluster.local, CN=sdsd local CA root',
      notAfter: '2039-12-30T00:00:00Z',
      current: true,
      neededUntil: null,
    },
    {
      fingerprint: 'cd34'.repeat(16),
      subject: 'O=cluster.local, CN=an older one',
      notAfter: '2039-12-30T00:00:00Z',
      current: false,
      neededUntil: '2030-01-02T00:00:00Z',
    },
  ],
  subscribers: [
    {
      connectionId: 'c1',
      nodeId: 'envoy\u001b[31m',
      variant: 'delta',
      names: [{ name: 'default', sentVersion: '7', ackedVersion: null, lastNack: 'bad key' }],
    },
  ],
  unknownNames: [{ name: 'nope ', count: 4 }],
};

/** A daemon that answers from memory and remembers what it was asked. */
export function fakeDaemonControl(
  overrides: Partial<DaemonControl> = {},
): DaemonControl & { readonly calls: unknown[] } {
  const calls: unknown[] = [];
  return {
    calls,
    status: () => STATUS,
    async rotate(name) {
      calls.push(['rotate', name]);
      return { rotated: [{ name: name ?? 'default', serialNumber: '0A1C', notAfter: '2030-01-02T00:00:00.000Z' }] };
    },
    async rotateRoot() {
      calls.push(['rotateRoot']);
      return { fingerprint: 'ab12', notAfter: '2040-01-01T00:00:00.000Z' };
    },
    async issue(request) {
      calls.push(['issue', request]);
      return { chainPem: 'chain\n', rootsPem: 'roots\n', askedTtlMs: request.ttlMs ?? 86_400_000 };
    },
    async roots() {
      return { pem: 'roots\n' };
    },
    ...overrides,
  };
}
