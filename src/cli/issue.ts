import { userInfo } from 'node:os';
import { join, resolve } from 'node:path';
import type { Command } from 'commander';
import { isoSeconds } from '../clock.js';
import { formatDuration, loadClientConfig, parseDuration, settings } from '../config/index.js';
import { messageOf, SdsdError } from '../errors.js';
import { timeLeft } from './format.js';
import { type CliIo, shellWord } from './io.js';
import {
  configFileOption,
  configSources,
  flag,
  type Options,
  optionsOf,
  outPath,
  settingOption,
  text,
  usageError,
} from './options.js';

export function addIssueCommand(program: Command, io: CliIo): void {
  program
    .command('issue')
    .description('Has the CA of the running daemon sign a certificate, for a program that does not speak SDS.')
    .usage('<spiffe-id> --out <dir> [options]')
    .argument('<spiffe-id>', 'the identity to certify, such as spiffe://cluster.local/ns/default/sa/ops')
    .requiredOption(
      '--out <dir>',
      'directory for key.pem, cert-chain.pem and root-cert.pem (required); made if the one above it exists',
    )
    .option('--ttl <duration>', "lifetime to ask for (default: the daemon's own)")
    .option('--foreign-trust-domain', "sign an identity of another trust domain than the daemon's own")
    .option('--force', 'overwrite files that exist')
    .addOption(settingOption(settings.controlSocket))
    .addOption(configFileOption())
    .addHelpText(
      'after',
      `
The key is made here and never leaves this machine's directory; only its public half goes to the daemon. Nobody renews the
certificate: call this again before it expires.

Example:
  sdsd issue spiffe://cluster.local/ns/default/sa/ops --out ./ops --ttl 1h
`,
    )
    .action(async (identity: string, _options: unknown, command: Command) => {
      const options = optionsOf(command);
      const out = outPath(options);
      if (out === '-') throw usageError('--out - cannot take three files', 'name a directory, such as --out ./ops');
      const directory = resolve(io.cwd, out ?? '.');
      const { controlSocket } = await loadClientConfig(configSources(options, io));
      const quiet = flag(options, 'quiet');
      await issue(
        {
          ...{ identity, directory, controlSocket, ttlMs: ttl(options), quiet },
          ...{ force: flag(options, 'force'), foreignTrustDomain: flag(options, 'foreignTrustDomain') },
        },
        io,
      );
    });
}

/** A lifetime that is shorter by more than this was cut. */
const CUT_MS = 5_000;

interface Issue {
  readonly identity: string;
  readonly directory: string;
  readonly controlSocket: string;
  readonly ttlMs: number | undefined;
  readonly force: boolean;
  readonly foreignTrustDomain: boolean;
  readonly quiet: boolean;
}

async function issue(
  { identity, directory, controlSocket, ttlMs, force, foreignTrustDomain, quiet }: Issue,
  io: CliIo,
): Promise<void> {
  const paths = {
    key: join(directory, 'key.pem'),
    chain: join(directory, 'cert-chain.pem'),
    roots: join(directory, 'root-cert.pem'),
  };
  const [pki, { controlClient }, { checkTargets, writeFiles }] = await Promise.all([
    import('../pki/index.js'),
    import('../admin/control-client.js'),
    import('./write-files.js'),
  ]);
  pki.parseSpiffeId(identity);
  const writing = { overwrite: force, makeDirectory: directory };
  // Before anything is signed; that a file appears afterwards is seen when they are written.
  await checkTargets(Object.values(paths), writing);
  const key = await pki.generatePrivateKey({ kind: 'ecdsa', curve: 'P-256' });
  const csrPem = pki.toPem('CERTIFICATE REQUEST', pki.createCsr({ key, uriSans: [identity] }));
  const requester = `${userInfo().username}, process ${process.pid}`;
  const request = { identity, csrPem, foreignTrustDomain, requester, ...(ttlMs !== undefined && { ttlMs }) };
  const { chainPem, rootsPem, askedTtlMs } = await controlClient(controlSocket).issue(request);
  const [leaf] = pki.parseCertificates(Buffer.from(chainPem));
  pki.parseCertificates(Buffer.from(rootsPem));
  if (!leaf?.x509.checkPrivateKey(key) || leaf.uriSans.length !== 1 || leaf.uriSans[0] !== identity) {
    throw new SdsdError('ERR_SDSD_CHAIN', 'the daemon signed another key or identity than it was asked for', {
      hint: 'check with --control-socket that this is your daemon; nothing was written',
    });
  }
  const { made } = await writeFiles(
    [
      { path: paths.roots, content: Buffer.from(rootsPem), mode: 0o644 },
      { path: paths.chain, content: Buffer.from(chainPem), mode: 0o644 },
      { path: paths.key, content: pki.encodePrivateKey(key, 'pkcs8'), mode: 0o600 },
    ],
    writing,
  );
  // A second is lost to rounding, and some to the way.
  const granted = leaf.notAfter - io.clock.now();
  if (granted < askedTtlMs - CUT_MS) {
    io.stderr.write(
      `sdsd: the CA granted ${formatDuration(Math.round(granted / 1_000) * 1_000)} instead of ${formatDuration(askedTtlMs)}: its own certificate ends before, or it allows no more\n`,
    );
  }
  if (quiet) return;
  const [keyFile, chainFile, rootsFile] = [paths.key, paths.chain, paths.roots].map(shellWord);
  io.stdout.write(
    `${identity}, serial ${leaf.serialNumber}, until ${isoSeconds(leaf.notAfter)} (${timeLeft(leaf.notAfter, io.clock.now())})${made ? `\n  in a new directory, ${directory}:` : ''}
  ${paths.key}
  ${paths.chain}
  ${paths.roots}
Call a server that wants a client certificate (curl compares host names, which a SPIFFE certificate has none of: with
--insecure it skips that, and openssl checks the server's chain):
  curl --insecure --cert ${chainFile} --key ${keyFile} https://127.0.0.1:8443/
  openssl s_client -connect 127.0.0.1:8443 -verify_return_error -CAfile ${rootsFile} -cert ${chainFile} -cert_chain ${chainFile} -key ${keyFile}
`,
  );
}

function ttl(options: Options): number | undefined {
  const value = text(options, 'ttl');
  if (value === undefined) return undefined;
  try {
    const ms = parseDuration(value);
    if (ms >= 1_000) return ms;
  } catch (error) {
    throw usageError(`--ttl ${value} cannot be used: ${messageOf(error)}`, 'write a duration such as 1h');
  }
  throw usageError(`--ttl ${value} is too short`, 'write a duration of a second or more, such as 1h');
}
