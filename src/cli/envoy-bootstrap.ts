import { isIP } from 'node:net';
import { isAbsolute } from 'node:path';
import { SdsdError } from '../errors.js';
import { MAX_SOCKET_PATH_BYTES } from '../sockets/index.js';
import { type Json, type JsonObject, toYaml } from './yaml.js';

/** What the Envoy does: takes mTLS connections in, sends requests out over mTLS, or both. */
export type EnvoyRole = 'server' | 'client' | 'both';

/** The variant of the SDS protocol: state of the world (`GRPC` in Envoy's words) or incremental (`DELTA_GRPC`). */
export type SdsApi = 'sotw' | 'delta';

export interface Address {
  /** An IP address; a DNS name too where something is connected to. */
  readonly host: string;
  /** 1 to 65535; 0 where something listens: any free port. */
  readonly port: number;
}

/** Which SPIFFE ID the peer must have in its certificate: this one, or one that begins so. */
export type PeerMatcher = { readonly exact: string } | { readonly prefix: string };

export interface EnvoyBootstrapOptions {
  /** Absolute path of the daemon's socket, at most 107 bytes. */
  readonly socket: string;
  /** Default: `both`. */
  readonly role?: EnvoyRole | undefined;
  /** Default: `sotw`. */
  readonly api?: SdsApi | undefined;
  /** What Envoy calls itself (`node.id`). Default: `envoy`. */
  readonly nodeId?: string | undefined;
  /** Server: where mTLS connections are taken. Default: 127.0.0.1:8443. */
  readonly listen?: Address | undefined;
  /** Server: where requests go, over plain HTTP/1.1. Default: Envoy answers `hello` by itself. */
  readonly backend?: Address | undefined;
  /** Client: where plain HTTP requests are taken to be sent on over mTLS. Default: 127.0.0.1:8080. */
  readonly egress?: Address | undefined;
  /** Client: the mTLS server. Needed for the role `client`; default for `both`: this Envoy's own server. */
  readonly upstream?: Address | undefined;
  /** Resource name of the certificate and key. Default: `default`. */
  readonly certificateName?: string | undefined;
  /** Resource name of the trust anchors. Default: `ROOTCA`. */
  readonly rootsName?: string | undefined;
  /** Default: `cluster.local`. */
  readonly trustDomain?: string | undefined;
  /** Who may be the other end, in either direction. Default: everyone in the trust domain. */
  readonly peer?: PeerMatcher | undefined;
  /** Client: makes a new mTLS connection for each request, without resumption, so that each rotation shows. Default: false. */
  readonly connectionPerRequest?: boolean | undefined;
  /** Port of Envoy's admin page on 127.0.0.1; 0: any free port. Default: 9901. */
  readonly adminPort?: number | undefined;
}

/** An Envoy bootstrap (`envoy.config.bootstrap.v3.Bootstrap`) in its JSON form. */
export type EnvoyBootstrap = {
  readonly node: { readonly id: string; readonly cluster: string };
  readonly admin: JsonObject;
  readonly static_resources: { readonly listeners: readonly JsonObject[]; readonly clusters: readonly JsonObject[] };
};

/**
 * A complete bootstrap for an Envoy that gets its certificate and its trust anchors from the daemon.
 *
 * Throws ERR_SDSD_USAGE for options that Envoy would refuse, or that would let in more peers than they seem to.
 */
export function envoyBootstrap(options: EnvoyBootstrapOptions): EnvoyBootstrap {
  const settings = checked(options);
  const serves = settings.role !== 'client';
  const calls = settings.role !== 'server';
  return {
    node: { id: settings.nodeId, cluster: 'sdsd' },
    admin: { address: socketAddress({ host: '127.0.0.1', port: settings.adminPort }) },
    static_resources: {
      listeners: [...(serves ? [serverListener(settings)] : []), ...(calls ? [egressListener(settings)] : [])],
      clusters: [
        sdsCluster(settings.socket),
        ...(serves && settings.backend ? [cluster('backend', settings.backend)] : []),
        ...(calls ? [upstreamCluster(settings)] : []),
      ],
    },
  };
}

/** The same as YAML, with a head that says what it is and how to start it. Throws as `envoyBootstrap` does. */
export function renderEnvoyBootstrap(options: EnvoyBootstrapOptions): string {
  const head = [
    'An Envoy with certificates from sdsd, made by `sdsd envoy bootstrap`.',
    'Save it as envoy.yaml and start it, before or after sdsd:  envoy -c envoy.yaml',
  ];
  return `${head.map((line) => `# ${line}\n`).join('')}${toYaml(envoyBootstrap(options))}`;
}

/**
 * Reads `HOST:PORT`, `[IPV6]:PORT`, or `PORT` alone for 127.0.0.1. `option` is named in errors (`--listen`).
 *
 * Throws ERR_SDSD_USAGE.
 */
export function parseAddress(value: string, option: string): Address {
  const match = /^(?:(?:\[(?<ipv6>[0-9a-fA-F:.]+)\]|(?<host>[^\s:[\]]+)):)?(?<port>\d{1,5})$/.exec(value);
  const port = Number(match?.groups?.['port']);
  if (!match || port > 65_535) {
    throw usage(`${option} ${value} is not an address`, 'write HOST:PORT, [IPV6]:PORT, or PORT alone for 127.0.0.1');
  }
  return { host: match.groups?.['ipv6'] ?? match.groups?.['host'] ?? '127.0.0.1', port };
}

// ---- Options

interface Settings {
  readonly socket: string;
  readonly role: EnvoyRole;
  readonly api: SdsApi;
  readonly nodeId: string;
  readonly listen: Address;
  readonly backend: Address | undefined;
  readonly egress: Address;
  readonly upstream: Address;
  readonly certificateName: string;
  readonly rootsName: string;
  readonly peer: PeerMatcher;
  readonly connectionPerRequest: boolean;
  readonly adminPort: number;
}

function checked(options: EnvoyBootstrapOptions): Settings {
  const { role = 'both', listen = { host: '127.0.0.1', port: 8443 }, trustDomain = 'cluster.local' } = options;
  const { certificateName = 'default', rootsName = 'ROOTCA', adminPort = 9901 } = options;
  const upstream = options.upstream ?? (role === 'client' ? undefined : loopback(listen));
  if (!upstream) {
    throw usage('the role client needs the address of an mTLS server', 'name it with --upstream HOST:PORT');
  }
  if (certificateName === rootsName) {
    // Envoy takes a certificate under the roots' name without a word, and stops to verify its peers.
    throw usage(`certificate and roots have the same resource name, ${rootsName}`, 'use two names');
  }
  const settings = {
    socket: options.socket,
    role,
    api: options.api ?? 'sotw',
    nodeId: notEmpty(options.nodeId ?? 'envoy', 'node id'),
    listen: listening(listen, 'the mTLS listener'),
    backend: options.backend && reachable(options.backend, 'the backend'),
    egress: listening(options.egress ?? { host: '127.0.0.1', port: 8080 }, 'the egress listener'),
    upstream: role === 'server' ? upstream : reachable(upstream, 'the upstream mTLS server'),
    certificateName: notEmpty(certificateName, "certificate's resource name"),
    rootsName: notEmpty(rootsName, "roots' resource name"),
    peer: checkedPeer(options.peer ?? { prefix: `spiffe://${notEmpty(trustDomain, 'trust domain')}/` }),
    connectionPerRequest: options.connectionPerRequest ?? false,
    adminPort: listening({ host: '127.0.0.1', port: adminPort }, 'the admin page').port,
  };
  checkSocket(settings.socket);
  return settings;
}

/** Where a listener is reached from the same machine. */
function loopback({ host, port }: Address): Address {
  return { host: host === '0.0.0.0' ? '127.0.0.1' : host === '::' ? '::1' : host, port };
}

function checkSocket(path: string): void {
  if (!isAbsolute(path)) {
    const hint = "give the path from the root on: Envoy's working directory is seldom that of sdsd";
    throw usage(`the socket path ${JSON.stringify(path)} is not absolute`, hint);
  }
  const bytes = Buffer.byteLength(path);
  if (bytes > MAX_SOCKET_PATH_BYTES) {
    const limit = `a Unix socket's path may have ${MAX_SOCKET_PATH_BYTES}`;
    throw usage(
      `the socket path ${path} has ${bytes} bytes, and ${limit}`,
      'let sdsd serve on a shorter path (--socket)',
    );
  }
}

function checkedPeer(peer: PeerMatcher): PeerMatcher {
  // Without the slash after it, a trust domain is the beginning of other trust domains too.
  const [id, wanted] = 'exact' in peer ? [peer.exact, /^spiffe:\/\/[^/]+\/./] : [peer.prefix, /^spiffe:\/\/[^/]+\//];
  if (!wanted.test(id)) {
    throw usage(
      `${JSON.stringify(id)} does not say which peers to trust`,
      'write a whole SPIFFE ID, or a prefix that goes on to the slash after the trust domain: spiffe://example.org/',
    );
  }
  return peer;
}

function notEmpty(value: string, what: string): string {
  if (value === '') throw usage(`the ${what} is empty`, 'leave the option out to get its default');
  return value;
}

function listening(address: Address, what: string): Address {
  if (isIP(address.host) === 0) {
    throw usage(`${what} cannot listen on ${address.host}`, 'give an IP address, such as 127.0.0.1 or 0.0.0.0');
  }
  return withPort(address, 0, what);
}

function reachable(address: Address, what: string): Address {
  return withPort(address, 1, what);
}

function withPort(address: Address, least: number, what: string): Address {
  if (!Number.isInteger(address.port) || address.port < least || address.port > 65_535) {
    throw usage(`${address.port} is not a port for ${what}`, `give a number from ${least} to 65535`);
  }
  return address;
}

function usage(message: string, hint: string): SdsdError {
  return new SdsdError('ERR_SDSD_USAGE', message, { hint });
}

// ---- Envoy's configuration

const SDS_CLUSTER = 'sds-grpc';
const UPSTREAM_CLUSTER = 'upstream-mtls';
const TLS_TYPES = 'type.googleapis.com/envoy.extensions.transport_sockets.tls.v3';
const HTTP_OPTIONS = 'envoy.extensions.upstreams.http.v3.HttpProtocolOptions';

/** As many secrets as anybody asks for: each one holds a stream, and a circuit breaker counts streams as requests. */
const MAX_SECRETS = 1_000_000;

function sdsConfig(api: SdsApi): JsonObject {
  return {
    resource_api_version: 'V3',
    // Never give up: after a timeout Envoy would go live without a certificate and reset every connection.
    initial_fetch_timeout: '0s',
    api_config_source: {
      api_type: api === 'delta' ? 'DELTA_GRPC' : 'GRPC',
      transport_api_version: 'V3',
      // The node is some 60 KB, and would else come again with every ACK.
      set_node_on_first_message_only: true,
      grpc_services: [
        {
          envoy_grpc: {
            cluster_name: SDS_CLUSTER,
            // Envoy's own back-off grows to half a minute; a restarted daemon should be found within a second.
            retry_policy: { retry_back_off: { base_interval: '0.1s', max_interval: '1s' } },
          },
        },
      ],
    },
  };
}

function sdsCluster(socket: string): JsonObject {
  return {
    name: SDS_CLUSTER,
    type: 'STATIC',
    connect_timeout: '1s',
    circuit_breakers: {
      thresholds: [{ max_connections: MAX_SECRETS, max_pending_requests: MAX_SECRETS, max_requests: MAX_SECRETS }],
    },
    ...httpOptions({
      explicit_http_config: {
        // A daemon that hangs without closing its connection is noticed, and the next one is found.
        http2_protocol_options: { connection_keepalive: { interval: '10s', timeout: '5s' } },
      },
    }),
    load_assignment: loadAssignment(SDS_CLUSTER, { pipe: { path: socket } }),
  };
}

function httpOptions(options: JsonObject): JsonObject {
  return {
    typed_extension_protocol_options: {
      [HTTP_OPTIONS]: { '@type': `type.googleapis.com/${HTTP_OPTIONS}`, ...options },
    },
  };
}

function commonTlsContext(settings: Settings): JsonObject {
  const sds_config = sdsConfig(settings.api);
  return {
    // Peers that leave Envoy's defaults alone offer at most TLS 1.2 as clients, so 1.2 stays allowed.
    tls_params: { tls_minimum_protocol_version: 'TLSv1_2', tls_maximum_protocol_version: 'TLSv1_3' },
    tls_certificate_sds_secret_configs: [{ name: settings.certificateName, sds_config }],
    // Combined, for the matcher, and for safety: should the roots ever come empty, Envoy refuses them here.
    combined_validation_context: {
      default_validation_context: { match_typed_subject_alt_names: [{ san_type: 'URI', matcher: settings.peer }] },
      validation_context_sds_secret_config: { name: settings.rootsName, sds_config },
    },
  };
}

function serverListener(settings: Settings): JsonObject {
  const target: JsonObject = settings.backend
    ? { route: { cluster: 'backend' } }
    : { direct_response: { status: 200, body: { inline_string: 'hello\n' } } };
  return listener('server', settings.listen, {
    transport_socket: tls('DownstreamTlsContext', {
      require_client_certificate: true,
      common_tls_context: commonTlsContext(settings),
    }),
    filters: [
      httpFilter('server', target, {
        // The backend learns the caller's SPIFFE ID from x-forwarded-client-cert, and from nobody but this Envoy.
        forward_client_cert_details: 'SANITIZE_SET',
        set_current_client_cert_details: { uri: true },
      }),
    ],
  });
}

function egressListener(settings: Settings): JsonObject {
  return listener('egress', settings.egress, {
    filters: [httpFilter('egress', { route: { cluster: UPSTREAM_CLUSTER } }, {})],
  });
}

function upstreamCluster(settings: Settings): JsonObject {
  const { upstream, connectionPerRequest } = settings;
  const once = {
    common_http_protocol_options: { max_requests_per_connection: 1 },
    explicit_http_config: { http_protocol_options: {} },
  };
  return {
    ...cluster(UPSTREAM_CLUSTER, upstream),
    ...(connectionPerRequest ? httpOptions(once) : {}),
    transport_socket: tls('UpstreamTlsContext', {
      ...(isIP(upstream.host) === 0 ? { sni: upstream.host } : {}),
      ...(connectionPerRequest ? { max_session_keys: 0 } : {}),
      common_tls_context: commonTlsContext(settings),
    }),
  };
}

function tls(context: 'DownstreamTlsContext' | 'UpstreamTlsContext', config: JsonObject): JsonObject {
  return { name: 'envoy.transport_sockets.tls', typed_config: { '@type': `${TLS_TYPES}.${context}`, ...config } };
}

function listener(name: string, address: Address, filterChain: JsonObject): JsonObject {
  return { name, address: socketAddress(address), filter_chains: [filterChain] };
}

function httpFilter(statPrefix: string, target: JsonObject, more: JsonObject): JsonObject {
  const http = 'type.googleapis.com/envoy.extensions.filters';
  return {
    name: 'envoy.filters.network.http_connection_manager',
    typed_config: {
      '@type': `${http}.network.http_connection_manager.v3.HttpConnectionManager`,
      stat_prefix: statPrefix,
      ...more,
      route_config: {
        virtual_hosts: [{ name: 'all', domains: ['*'], routes: [{ match: { prefix: '/' }, ...target }] }],
      },
      http_filters: [{ name: 'envoy.filters.http.router', typed_config: { '@type': `${http}.http.router.v3.Router` } }],
    },
  };
}

function cluster(name: string, address: Address): JsonObject {
  return {
    name,
    type: isIP(address.host) === 0 ? 'STRICT_DNS' : 'STATIC',
    connect_timeout: '5s',
    load_assignment: loadAssignment(name, socketAddress(address)),
  };
}

function loadAssignment(cluster_name: string, address: Json): JsonObject {
  return { cluster_name, endpoints: [{ lb_endpoints: [{ endpoint: { address } }] }] };
}

function socketAddress({ host, port }: Address): JsonObject {
  return { socket_address: { address: host, port_value: port } };
}
