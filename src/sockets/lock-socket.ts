import { createServer } from 'node:net';
import { dirname } from 'node:path';
import type { Clock } from '../clock.js';
import { SdsdError } from '../errors.js';
import { keepListening } from './kept-socket.js';
import { listenUnix, type UnixListener } from './unix-socket.js';

export interface LockOptions {
  /** Absolute path of the lock, in the directory that it locks. */
  readonly path: string;
  readonly clock: Clock;
  /** Told once when the lock was deleted by hand and cannot be made again for now. */
  readonly onLost: (error: unknown) => void;
  /** Told when another sdsd has taken the directory, which it can only after the lock was deleted by hand. */
  readonly onTaken: (error: SdsdError) => void;
}

/**
 * Locks a directory for this process. The lock is a Unix socket that somebody listens on: the kernel ends it with the process,
 * however that dies, and it works between containers that share the directory. Rejects with ERR_SDSD_STATE_LOCKED if another
 * process has it.
 */
export function lockDirectory({ path, ...options }: LockOptions): Promise<UnixListener> {
  const listen = (): Promise<UnixListener> => {
    const server = createServer((socket) => {
      socket.on('error', () => socket.destroy());
      socket.end('locked\n');
    });
    server.unref();
    return listenUnix(server, {
      path,
      mode: 0o600,
      directoryMode: 0o700,
      greeting: Buffer.from('?'),
      setting: '--state-dir or SDSD_STATE_DIR',
      clock: options.clock,
      anyLength: true,
    }).catch((error: unknown) => {
      throw lockError(dirname(path), error);
    });
  };
  return keepListening({ listen, onRestored: () => undefined, ...options });
}

function lockError(directory: string, error: unknown): unknown {
  if (!(error instanceof SdsdError) || error.code !== 'ERR_SDSD_SOCKET_IN_USE') return error;
  return new SdsdError('ERR_SDSD_STATE_LOCKED', `another sdsd uses the state directory ${directory}`, {
    hint: 'stop it; or start this one in another folder, or with its own --state-dir, --socket and --control-socket',
    cause: error,
  });
}
