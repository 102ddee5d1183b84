import { type Command, Option } from 'commander';
import { sleep } from '../clock.js';
import { type ClientConfig, loadClientConfig, settings } from '../config/index.js';
import type { EnvoyBootstrapOptions, EnvoyRole, PeerMatcher } from './envoy-bootstrap.js';
import { addHelpCommand } from './help.js';
import type { CliIo } from './io.js';
import {
  configFileOption,
  configSources,
  flag,
  type Options,
  optionsOf,
  settingOption,
  text,
  usageError,
} from './options.js';

const ROLES: readonly EnvoyRole[] = ['server', 'client', 'both'];

export function addEnvoyCommand(program: Command, io: CliIo): void {
  const group = program.command('envoy').description('Commands about Envoy.');
  group
    .command('bootstrap')
    .description('Prints a complete configuration for an Envoy that gets its secrets from the daemon, as YAML.')
    .addOption(
      new Option('--role <role>', 'take mTLS in, send requests out over mTLS, or both').choices(ROLES).default('both'),
    )
    .option('--listen <address>', 'where mTLS is taken in (default: 127.0.0.1:8443)')
    .option('--backend <address>', 'where these requests go, over plain HTTP (default: Envoy answers by itself)')
    .option('--egress-port <port>', 'port on 127.0.0.1 for requests to send out over mTLS (default: 8080)')
    .option('--upstream <address>', 'the mTLS server that they go to (default: this Envoy itself)')
    .option('--peer <spiffe-id>', 'who may be the other end; ending in "/": everyone below (default: the trust domain)')
    .option('--name <name>', 'resource name of the certificate (default: default)')
    .option('--roots-name <name>', 'resource name of the roots (default: ROOTCA)')
    .option('--delta', 'use the incremental variant of SDS')
    .option('--node-id <id>', 'what Envoy calls itself (default: envoy)')
    .option('--admin-port <port>', "port of Envoy's admin page on 127.0.0.1 (default: 9901)")
    .addOption(settingOption(settings.socket))
    .addOption(settingOption(settings.trustDomain))
    .addOption(settingOption(settings.controlSocket))
    .addOption(configFileOption())
    .addHelpText(
      'after',
      `
It allows TLS 1.3. Peers without it that get certificates with P-384 keys (ECC_CURVE=P384) need ecdh_curves: [P-384] in tls_params.
A cluster of your own that leads to sdsd needs a plain name, or authority: localhost in its envoy_grpc.

Examples:
  sdsd envoy bootstrap > envoy.yaml && envoy -c envoy.yaml &
  curl http://127.0.0.1:8080/                        through mTLS, to the same Envoy
  sdsd envoy bootstrap --role server --listen 0.0.0.0:8443 --backend 127.0.0.1:3000
  sdsd envoy bootstrap --role client --upstream shop.example:8443 --peer spiffe://cluster.local/ns/shop/
`,
    )
    .action(async (_options: unknown, command: Command) => {
      const options = optionsOf(command);
      const { socket, trustDomain } = await fromDaemon(await loadClientConfig(configSources(options, io)), options, io);
      const { parseAddress, renderEnvoyBootstrap } = await import('./envoy-bootstrap.js');
      const address = (key: string, name: string) => {
        const value = text(options, key);
        return value === undefined ? undefined : parseAddress(value, name);
      };
      const egressPort = port(options, 'egressPort', '--egress-port');
      const bootstrap: EnvoyBootstrapOptions = {
        socket,
        trustDomain,
        role: ROLES.find((role) => role === text(options, 'role')),
        api: flag(options, 'delta') ? 'delta' : 'sotw',
        nodeId: text(options, 'nodeId'),
        listen: address('listen', '--listen'),
        backend: address('backend', '--backend'),
        egress: egressPort === undefined ? undefined : { host: '127.0.0.1', port: egressPort },
        upstream: address('upstream', '--upstream'),
        certificateName: text(options, 'name'),
        rootsName: text(options, 'rootsName'),
        peer: peer(text(options, 'peer')),
        adminPort: port(options, 'adminPort', '--admin-port'),
      };
      io.stdout.write(renderEnvoyBootstrap(bootstrap));
    });
  addHelpCommand(group, io);
}

/** How long the running daemon may take to say what it serves, in ms: without one the settings of this command count. */
const DAEMON_WITHIN_MS = 1_000;

/** What a running daemon says of itself comes before settings that it may not have been started with; flags come first. */
async function fromDaemon(config: ClientConfig, options: Options, io: CliIo): Promise<ClientConfig> {
  const { controlClient } = await import('../admin/control-client.js');
  const enough = new AbortController();
  const status = await Promise.race([
    controlClient(config.controlSocket)
      .status()
      .catch(() => undefined),
    sleep(io.clock, DAEMON_WITHIN_MS, enough.signal).catch(() => undefined),
  ]);
  enough.abort();
  const identity = status?.secrets.find(({ name }) => name === 'default')?.identity;
  if (!status || !identity) return config;
  const { parseSpiffeId } = await import('../pki/index.js');
  const { trustDomain } = parseSpiffeId(identity);
  const chosen = text(options, 'trustDomain');
  if (chosen !== undefined && chosen !== trustDomain) {
    io.stderr.write(`sdsd: the running daemon is of the trust domain ${trustDomain}, and not of ${chosen}\n`);
  }
  return {
    ...config,
    socket: text(options, 'socket') === undefined ? status.socket : config.socket,
    trustDomain: chosen ?? trustDomain,
  };
}

function port(options: Options, key: string, name: string): number | undefined {
  const value = text(options, key);
  if (value === undefined) return undefined;
  if (!/^\d{1,5}$/.test(value) || Number(value) > 65_535) {
    throw usageError(`${name} ${value} is not a port`, 'give a number from 0 to 65535');
  }
  return Number(value);
}

function peer(value: string | undefined): PeerMatcher | undefined {
  if (value === undefined) return undefined;
  return value.endsWith('/') ? { prefix: value } : { exact: value };
}
