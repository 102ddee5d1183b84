import type { Command } from 'commander';
import type { DaemonStatus, RootStatus, SecretStatus, SubscribedName } from '../admin/daemon-control.js';
import { loadClientConfig, settings } from '../config/index.js';
import { printable } from '../log.js';
import { colored, json, span, table, timeLeft } from './format.js';
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
      io.stdout.write(text(options, 'output') === 'json' ? json(status) : statusText(status, io));
    });
}

function times(count: number): string {
  return count === 1 ? 'once' : `${count} times`;
}

/** Columns of a terminal that all of it fits into. */
const WIDTH = 100;

/** The status as a person reads it. */
function statusText(status: DaemonStatus, io: CliIo): string {
  const now = io.clock.now();
  const blocks = [daemonText(status, io, now), secretsText(status.secrets, now), rootsText(status.roots, now)];
  if (status.subscribers.length > 0) blocks.push(subscribersText(status));
  if (status.unknownNames.length > 0) {
    blocks.push(
      table(
        ['NAMES THAT ARE NOT SERVED', 'ASKED FOR'],
        status.unknownNames.map(({ name, count }) => [cut(JSON.stringify(name), 80), times(count)]),
      ),
    );
  }
  return blocks.join('\n');
}

function daemonText(status: DaemonStatus, io: CliIo, now: number): string {
  const { ca } = status;
  const state = ca.state === 'ready' ? colored(io, 'green', 'ready') : colored(io, 'red', 'failing');
  const why = ca.lastError === null ? '' : `: ${printable(ca.lastError)}`;
  const end = ca.notAfter === null ? [] : [`        ends ${ca.notAfter} (${timeLeft(Date.parse(ca.notAfter), now)})`];
  return [
    `sdsd ${printable(status.version)}, process ${status.pid}, up ${span(now - Date.parse(status.startedAt))}`,
    `socket  ${printable(status.socket)}`,
    `state   ${printable(status.stateDir)}`,
    `CA      ${printable(ca.description)}, ${state}${why}`,
    ...end,
    '',
  ].join('\n');
}

/** Two lines for each, for an identity may be long; and one more for what went wrong. */
function secretsText(secrets: readonly SecretStatus[], now: number): string {
  const rows = secrets.map((secret): Row => {
    const { name, state, serialNumber, notAfter, renewAt, subscribers } = secret;
    return {
      cells: [
        cut(name, 20),
        state,
        notAfter ?? '',
        notAfter === null ? '' : left(Date.parse(notAfter), now),
        renewAt === null ? '' : renewal(Date.parse(renewAt), now),
        String(subscribers),
        cut(serialNumber ?? '', 9),
      ],
      below: [secret.kind === 'validation-context' ? 'trust anchors' : (secret.identity ?? ''), lastError(secret)],
    };
  });
  return tableWithLines(['NAME', 'STATE', 'NOT AFTER', 'LEFT', 'RENEWS', 'CLIENTS', 'SERIAL'], rows);
}

function lastError({ lastError, failures }: SecretStatus): string {
  if (lastError === null) return '';
  return failures > 1 ? `failed ${times(failures)}: ${lastError}` : `failed: ${lastError}`;
}

function rootsText(roots: readonly RootStatus[], now: number): string {
  const rows = roots.map(
    ({ fingerprint, subject, notAfter, current, neededUntil }): Row => ({
      cells: [
        cut(fingerprint, 17),
        notAfter,
        left(Date.parse(notAfter), now),
        current ? 'the CA stands for it' : `until ${neededUntil}, for certificates under it`,
      ],
      below: [subject],
    }),
  );
  return tableWithLines(['ROOT (SHA-256)', 'NOT AFTER', 'LEFT', 'STAYS'], rows);
}

function subscribersText(status: DaemonStatus): string {
  const rows = status.subscribers.flatMap(({ nodeId, connectionId, variant, names }) =>
    names.map(
      (watched): Row => ({
        cells: [cut(nodeId, 30), connectionId, variant, cut(watched.name, 30), acknowledgement(watched)],
        below: watched.lastNack === null ? [] : [`rejected: ${watched.lastNack}`],
      }),
    ),
  );
  return tableWithLines(['CLIENT', 'CONNECTION', 'API', 'NAME', 'HAS'], rows);
}

/** Which of what was sent the client uses. */
function acknowledgement({ sentVersion, ackedVersion, lastNack }: SubscribedName): string {
  if (lastNack !== null) return ackedVersion === null ? 'nothing' : 'an older one';
  if (sentVersion === null) return 'nothing yet';
  if (ackedVersion === sentVersion) return 'the newest';
  return ackedVersion === null ? 'not said yet' : 'an older one';
}

function left(time: number, now: number): string {
  return timeLeft(time, now).replace(/ left$/, '');
}

function renewal(time: number, now: number): string {
  return time > now ? `in ${span(time - now)}` : 'now';
}

/** A row of a table, and lines of their own below it. */
interface Row {
  readonly cells: readonly string[];
  readonly below: readonly string[];
}

function tableWithLines(head: readonly string[], rows: readonly Row[]): string {
  const [first = '', ...lines] = table(
    head,
    rows.map(({ cells }) => cells),
  )
    .trimEnd()
    .split('\n');
  const texts = lines.flatMap((line, index) => [
    line,
    ...(rows[index]?.below ?? []).filter((text) => text !== '').map((text) => `  ${cut(printable(text), WIDTH - 2)}`),
  ]);
  return `${[first, ...texts].join('\n')}\n`;
}

function cut(text: string, length: number): string {
  return text.length > length ? `${text.slice(0, length - 1)}…` : text;
}
