import type { Stats } from 'node:fs';
import { readFile, stat } from 'node:fs/promises';
import type { Clock } from '../clock.js';
import { errnoOf, SdsdError } from '../errors.js';
import { HTTP2_GREETING, type Probe, probeSocket } from '../sockets/index.js';

const FRAME_HEADER_BYTES = 9;
const SETTINGS = 4;

/** Waits at most `timeoutMs` for what an HTTP/2 server must say first: `speaks`. Never rejects. */
export async function probeHttp2(path: string, clock: Clock, timeoutMs: number): Promise<Probe | { kind: 'speaks' }> {
  const probe = await probeSocket({ path, greeting: HTTP2_GREETING, least: FRAME_HEADER_BYTES, clock, timeoutMs });
  return probe.kind === 'answers' && probe.bytes[3] === SETTINGS ? { kind: 'speaks' } : probe;
}

/** Why no SDS server can be asked on this socket; undefined for a server that speaks HTTP/2. */
export async function socketFault(
  path: string,
  probe: Awaited<ReturnType<typeof probeHttp2>>,
): Promise<SdsdError | undefined> {
  switch (probe.kind) {
    case 'speaks':
      return undefined;
    case 'answers':
    case 'closed':
      return new SdsdError('ERR_SDSD_SOCKET', `what listens on ${path} is no SDS server: it does not speak HTTP/2`, {
        hint: 'say with --socket where the SDS server listens; the control socket is another one',
      });
    case 'mute':
      return new SdsdError('ERR_SDSD_SOCKET', `what listens on ${path} says nothing: it is no SDS server, or hangs`, {
        hint: 'look at the log of the server, or say with --socket where the SDS server listens',
      });
    case 'refused':
      return refusal(path, probe.error);
  }
}

async function refusal(path: string, cause: Error): Promise<SdsdError> {
  const fault = (message: string, hint: string): SdsdError =>
    new SdsdError('ERR_SDSD_SOCKET', message, { hint, cause });
  switch (errnoOf(cause)) {
    case 'ENOENT':
      return fault(
        `there is no socket ${path}: is sdsd running?`,
        'start it with `sdsd run`, or say with --socket where it listens',
      );
    case 'ECONNREFUSED':
    case 'ENOTSOCK':
      return (await isSocket(path))
        ? fault(
            `nobody listens on the socket ${path}: is sdsd running?`,
            'start it with `sdsd run`, or say with --socket where it listens',
          )
        : fault(`${path} is not a socket`, 'say with --socket where the SDS server listens');
    case 'EACCES':
    case 'EPERM':
      return forbidden(path, fault);
    default:
      return fault(`cannot connect to ${path}: ${cause.message}`, 'say with --socket where the SDS server listens');
  }
}

async function forbidden(path: string, fault: (message: string, hint: string) => SdsdError): Promise<SdsdError> {
  let stats: Stats;
  try {
    stats = await stat(path);
  } catch {
    return fault(
      `this user may not use the socket ${path}: it may not enter a directory above it`,
      'run the command as a user who may, such as that of the daemon',
    );
  }
  const mode = (stats.mode & 0o7777).toString(8).padStart(4, '0');
  const [owner, group] = await Promise.all([nameOf('/etc/passwd', stats.uid), nameOf('/etc/group', stats.gid)]);
  return fault(
    `this user may not use the socket ${path}: its mode is ${mode}, its owner ${owner}, its group ${group}`,
    (stats.mode & 0o020) === 0
      ? 'run the command as its owner'
      : `run the command as its owner, or as a member of the group ${group}`,
  );
}

async function isSocket(path: string): Promise<boolean> {
  return stat(path).then(
    (stats) => stats.isSocket(),
    () => true,
  );
}

/** A user or group by its name, as passwd(5) and group(5) have it, with its number. */
async function nameOf(file: string, id: number): Promise<string> {
  const lines = (await readFile(file, 'utf8').catch(() => '')).split('\n');
  const name = lines.find((candidate) => candidate.split(':')[2] === String(id))?.split(':')[0];
  return name ? `${name} (${id})` : String(id);
}
