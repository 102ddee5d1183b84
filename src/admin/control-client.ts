import { type ErrorCode, errnoOf, errorCodes, messageOf, SdsdError } from '../errors.js';
import {
  daemonStatus,
  issueResult,
  type Reader,
  rootsResult,
  rotateResult,
  rotateRootResult,
} from './control-answers.js';
import type {
  DaemonStatus,
  IssueRequest,
  IssueResult,
  RootsResult,
  RotateResult,
  RotateRootResult,
} from './daemon-control.js';

/** The commands of a running daemon, from outside. All reject with the daemon's own error, or ERR_SDSD_CONTROL. */
export interface ControlClient {
  status(): Promise<DaemonStatus>;
  rotate(name?: string): Promise<RotateResult>;
  rotateRoot(): Promise<RotateRootResult>;
  issue(request: IssueRequest): Promise<IssueResult>;
  roots(): Promise<RootsResult>;
}

/** @param path of the control socket. Nothing is opened before the first call. */
export function controlClient(path: string): ControlClient {
  const ask = async <T>(read: Reader<T>, method: 'GET' | 'POST', route: string, body?: unknown): Promise<T> => {
    const answer = await controlRequest(path, method, route, body);
    try {
      return read(answer, route);
    } catch (error) {
      throw new SdsdError('ERR_SDSD_CONTROL', `the daemon on ${path} gave an unexpected answer: ${messageOf(error)}`, {
        hint: 'use the same version of sdsd for the daemon and for this command',
        cause: error,
      });
    }
  };
  return {
    status: () => ask(daemonStatus, 'GET', '/status'),
    rotate: (name) => ask(rotateResult, 'POST', '/rotate', { name }),
    rotateRoot: () => ask(rotateRootResult, 'POST', '/rotate-root'),
    issue: (request) => ask(issueResult, 'POST', '/issue', request),
    roots: () => ask(rootsResult, 'GET', '/roots'),
  };
}

/** How long the daemon may take to answer, in ms: longer than a CA that is slow. */
const ANSWER_TIMEOUT_MS = 60_000;
const MAX_ANSWER_BYTES = 64 * 1024 * 1024;

/**
 * Sends one request to the control socket of a running daemon; returns the parsed body of the answer, whose shape is for
 * the caller to check. Throws ERR_SDSD_CONTROL when no daemon can be reached, and the daemon's own error when it refuses.
 */
export async function controlRequest(
  path: string,
  method: 'GET' | 'POST',
  route: string,
  body?: unknown,
): Promise<unknown> {
  const answer = await exchange(path, method, route, body);
  const value = parse(answer.text, path);
  if (answer.status === 200) return value;
  throw errorFrom(value, answer.status);
}

interface Answer {
  readonly status: number;
  readonly text: string;
}

async function exchange(path: string, method: string, route: string, body: unknown): Promise<Answer> {
  const { request } = await import('node:http');
  const payload = method === 'POST' ? Buffer.from(JSON.stringify(body ?? {})) : undefined;
  const headers = payload ? { 'content-type': 'application/json', 'content-length': payload.length } : {};
  return new Promise((resolve, reject) => {
    const outgoing = request({ socketPath: path, method, path: route, headers, agent: false }, (incoming) => {
      const chunks: Buffer[] = [];
      let length = 0;
      incoming.on('data', (chunk: Buffer) => {
        length += chunk.length;
        if (length > MAX_ANSWER_BYTES) outgoing.destroy(new Error('the answer is too long'));
        else chunks.push(chunk);
      });
      incoming.on('error', (error) => reject(unreachable(path, error)));
      incoming.on('end', () =>
        resolve({ status: incoming.statusCode ?? 0, text: Buffer.concat(chunks).toString('utf8') }),
      );
    });
    outgoing.setTimeout(ANSWER_TIMEOUT_MS, () =>
      outgoing.destroy(
        new SdsdError(
          'ERR_SDSD_TIMEOUT',
          `the daemon on ${path} gave no answer within ${ANSWER_TIMEOUT_MS / 1_000} s`,
          {
            hint: "see the daemon's log",
          },
        ),
      ),
    );
    outgoing.on('error', (error) => reject(error instanceof SdsdError ? error : unreachable(path, error)));
    outgoing.end(payload);
  });
}

function unreachable(path: string, error: unknown): SdsdError {
  const cause = { cause: error };
  switch (errnoOf(error)) {
    case 'ENOENT':
    case 'ECONNREFUSED':
      return new SdsdError('ERR_SDSD_CONTROL', `no daemon answers on the control socket ${path}: is sdsd running?`, {
        hint: 'start it with `sdsd run`, or say with --control-socket where it listens',
        ...cause,
      });
    case 'EACCES':
    case 'EPERM':
      return new SdsdError('ERR_SDSD_CONTROL', `this user may not use the control socket ${path}`, {
        hint: 'run the command as the user that runs the daemon',
        ...cause,
      });
    case 'ENOTDIR':
    case 'ENAMETOOLONG':
    case 'EINVAL':
      return new SdsdError('ERR_SDSD_CONTROL', `${path} cannot be a control socket: ${messageOf(error)}`, {
        hint: 'say with --control-socket where the daemon listens for commands',
        ...cause,
      });
    case 'HPE_INVALID_CONSTANT':
      return foreign(path, error);
    default:
      return new SdsdError('ERR_SDSD_CONTROL', `the daemon on ${path} did not answer: ${messageOf(error)}`, {
        hint: "see the daemon's log",
        ...cause,
      });
  }
}

function parse(text: string, path: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw foreign(path, error);
  }
}

function foreign(path: string, cause: unknown): SdsdError {
  return new SdsdError('ERR_SDSD_CONTROL', `what answers on ${path} is not the control socket of sdsd`, {
    hint: 'say with --control-socket where the daemon listens for commands; the SDS socket is another one',
    cause,
  });
}

function errorFrom(body: unknown, status: number): SdsdError {
  const error = field(body, 'error');
  const message = field(error, 'message');
  const hint = field(error, 'hint');
  return new SdsdError(
    knownCode(field(error, 'code')),
    typeof message === 'string' ? message : `the daemon answered with HTTP status ${status}`,
    typeof hint === 'string' ? { hint } : {},
  );
}

function field(value: unknown, key: string): unknown {
  return typeof value === 'object' && value !== null ? Reflect.get(value, key) : undefined;
}

function knownCode(code: unknown): ErrorCode {
  return typeof code === 'string' && isErrorCode(code) ? code : 'ERR_SDSD_CONTROL';
}

function isErrorCode(code: string): code is ErrorCode {
  return Object.hasOwn(errorCodes, code);
}
