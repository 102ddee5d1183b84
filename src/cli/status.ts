import type { Command } from 'commander';
import type { DaemonStatus, SecretStatus } from '../admin/daemon-control.js';
import { loadClientConfig, settings } from '../config/index.js';
import { printable } from '../log.js';
import { colored, isoSeconds, json, span, table, timeLeft } from './format.js';
import type { CliIo } from './io.js';
import { configFileOption, configSources, optionsOf, outputOption, settingOption, text } from './options.js';

export function addStatusCommand(program: Command, io: CliIo): void {
  program
    .command('status')
    .description('Shows what the running daemon serves, to whom, and what went wrong.')
    .addOption(settingOption(settings.controlSocket))
    .addOption(configFileOption())
    .addOption(outputOption('text', 'json'))
    .addHelpText('after', "\nExamples:\n  sdsd status\n  sdsd status -o json | jq '.secrets[].notAfter'\n")
    .action(async (_options: unknown, command: Command) => {
      const options = optionsOf(command);
      const { controlSocket } = await loadClientConfig(configSources(options, io));
      const { controlClient } = await import('../admin/control-client.js');
      const status = await controlClient(controlSocket).status();
      io.stdout.write(text(options, 'output') === 'json' ? json(statusView(status)) : statusText(status, io));
    });
}

/** The status as `-o json` shows it: versions are strings, and times without fractions of a second, as in `sdsd get`. */
function statusView(status: DaemonStatus): unknown {
  return {
    ...status,
    startedAt: timeView(status.startedAt),
    secrets: status.secrets.map((secret) => ({
      ...secret,
      notBefore: timeView(secret.notBefore),
      notAfter: timeView(secret.notAfter),
      renewAt: timeView(secret.renewAt),
      version: versionView(secret.version),
    })),
    subscribers: status.subscribers.map((subscriber) => ({
      ...subscriber,
      names: subscriber.names.map((name) => ({
        ...name,
        sentVersion: versionView(name.sentVersion),
        ackedVersion: versionView(name.ackedVersion),
      })),
    })),
  };
}

function timeView(time: string | null): string | null {
  return time === null ? null : isoSeconds(Date.parse(time));
}

function versionView(version: number | null): string | null {
  return version === null ? null : String(version);
}

function times(count: number): string {
  return count === 1 ? 'once' : `${count} times`;
}

/** The status as a person reads it. */
function statusText(status: DaemonStatus, io: CliIo): string {
  const now = io.clock.now();
  const blocks = [daemonText(status, io, now), secretsText(status.secrets, now)];
  if (status.subscribers.length > 0) blocks.push(subscribersText(status));
  if (status.unknownNames.length > 0) {
    blocks.push(
      table(
        ['NAMES THAT ARE NOT SERVED', 'ASKED FOR'],
        status.unknownNames.map(({ name, count }) => [name, times(count)]),
      ),
    );
  }
  return blocks.join('\n');
}

function daemonText(status: DaemonStatus, io: CliIo, now: number): string {
  const { ca } = status;
  const state = ca.state === 'ready' ? colored(io, 'green', 'ready') : colored(io, 'red', 'failing');
  const why = ca.lastError === null ? '' : `: ${printable(ca.lastError)}`;
  return [
    `sdsd ${printable(status.version)}, process ${status.pid}, up ${span(now - Date.parse(status.startedAt))}`,
    `socket  ${printable(status.socket)}`,
    `state   ${printable(status.stateDir)}`,
    `CA      ${printable(ca.description)}, ${state}${why}`,
    '',
  ].join('\n');
}

const SECRET_HEAD = ['NAME', 'KIND', 'STATE', 'SERIAL', 'NOT AFTER', 'LEFT', 'RENEWS', 'SUBSCRIBERS', 'LAST ERROR'];

function secretsText(secrets: readonly SecretStatus[], now: number): string {
  const rows = secrets.map((secret) => [
    secret.name,
    secret.kind === 'tls-certificate' ? 'certificate' : 'roots',
    secret.state,
    secret.serialNumber ?? '',
    secret.notAfter === null ? '' : isoSeconds(Date.parse(secret.notAfter)),
    secret.notAfter === null ? '' : timeLeft(Date.parse(secret.notAfter), now).replace(/ left$/, ''),
    secret.renewAt === null ? '' : renewal(Date.parse(secret.renewAt), now),
    String(secret.subscribers),
    secret.lastError === null ? '' : `${secret.lastError}${secret.failures > 1 ? ` (${times(secret.failures)})` : ''}`,
  ]);
  return table(SECRET_HEAD, rows);
}

function renewal(time: number, now: number): string {
  return time > now ? `in ${span(time - now)}` : 'now';
}

function subscribersText(status: DaemonStatus): string {
  const rows = status.subscribers.flatMap(({ nodeId, connectionId, variant, names }) =>
    names.map(({ name, sentVersion, ackedVersion, lastNack }) => [
      nodeId,
      connectionId,
      variant,
      name,
      sentVersion === null ? '' : String(sentVersion),
      ackedVersion === null ? '' : String(ackedVersion),
      lastNack ?? '',
    ]),
  );
  return table(['SUBSCRIBER', 'CONNECTION', 'PROTOCOL', 'NAME', 'SENT', 'ACKED', 'REFUSED BECAUSE'], rows);
}
