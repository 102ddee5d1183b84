/** A disk that is full, and directories that this user may not write to: nothing half written, nothing lost. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { chmod, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { openLocalCa } from '../../src/ca/index.js';
import { systemClock } from '../../src/clock.js';
import { createCsr, generatePrivateKey } from '../../src/pki/index.js';
import { trustBundleFile } from '../../src/secrets/index.js';
import { listenUnix, lockDirectory } from '../../src/sockets/index.js';
import { openStateDirectory, writeFileAtomic } from '../../src/storage/index.js';
import { temporaryDirectory } from '../support/temp.js';

const isRoot = process.getuid?.() === 0;
const NOBODY = 65_534;

/** A file system of 64 KB, as a directory; undefined if this user may not mount one. */
async function smallDisk() {
  const directory = await temporaryDirectory();
  const path = join(directory.path, 'disk');
  await mkdir(path);
  const { status } = spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=64k', 'tmpfs', path]);
  if (status !== 0) {
    await directory[Symbol.asyncDispose]();
    return undefined;
  }
  return {
    path,
    /** Takes all the room that is left. */
    async fill(): Promise<void> {
      let size = 64 * 1024;
      while (size > 0) {
        try {
          await writeFile(join(path, `filler-${size}`), Buffer.alloc(size));
        } catch {
          await rm(join(path, `filler-${size}`), { force: true });
        }
        size = Math.floor(size / 2);
      }
    },
    async empty(): Promise<void> {
      for (const name of await readdir(path)) if (name.startsWith('filler')) await rm(join(path, name));
    },
    async [Symbol.asyncDispose](): Promise<void> {
      spawnSync('umount', [path]);
      await directory[Symbol.asyncDispose]();
    },
  };
}

const probe = await smallDisk();
await probe?.[Symbol.asyncDispose]();
const noMount = probe === undefined && 'this user may not mount a small file system';

const openState = (path: string) =>
  openStateDirectory({
    path,
    trusted: '/nowhere',
    lock: (lock) =>
      lockDirectory({ path: lock, clock: systemClock, onLost: () => undefined, onTaken: () => undefined }),
  });

/** Runs with the rights of a user who is not root. */
async function unprivileged(action: () => Promise<void>): Promise<void> {
  if (!isRoot) return action();
  process.setegid?.(NOBODY);
  process.seteuid?.(NOBODY);
  try {
    await action();
  } finally {
    process.seteuid?.(0);
    process.setegid?.(0);
  }
}

describe('a full disk', { skip: noMount }, () => {
  it('leaves a file that was to be replaced as it was, and no other file', async () => {
    await using disk = await smallDisk();
    assert.ok(disk);
    const file = join(disk.path, 'file');
    await writeFile(file, 'old');
    await disk.fill();
    const before = await readdir(disk.path);
    await assert.rejects(writeFileAtomic(file, Buffer.alloc(32_768), 0o600), { code: 'ENOSPC' });
    assert.equal(await readFile(file, 'utf8'), 'old');
    assert.deepEqual(await readdir(disk.path), before);
  });

  it('keeps the local CA on its root, which signs on; with room again the root can be replaced', async () => {
    await using disk = await smallDisk();
    assert.ok(disk);
    const directory = join(disk.path, 'ca');
    const ca = await openLocalCa({ directory, trustDomain: 'example.org', clock: systemClock });
    const signal = new AbortController().signal;
    const [root] = (await ca.roots(signal)) ?? [];
    await disk.fill();
    await assert.rejects(ca.rotateRoot(), { code: 'ERR_SDSD_CA_FILES' });
    const san = 'spiffe://example.org/a';
    const csr = createCsr({ key: await generatePrivateKey({ kind: 'ecdsa', curve: 'P-256' }), uriSans: [san] });
    const { roots } = await ca.sign({ csr, sans: [san], ttl: 60_000 }, signal);
    assert.equal(roots[0]?.fingerprint, root?.fingerprint);
    const again = await openLocalCa({ directory, trustDomain: 'example.org', clock: systemClock });
    assert.equal((await again.roots(signal))?.[0]?.fingerprint, root?.fingerprint);
    await disk.empty();
    await ca.rotateRoot();
    assert.notEqual((await ca.roots(signal))?.[0]?.fingerprint, root?.fingerprint);
  });

  it('keeps the trust anchors that were stored before', async () => {
    await using disk = await smallDisk();
    assert.ok(disk);
    const ca = await openLocalCa({ directory: join(disk.path, 'ca'), trustDomain: 'example.org', clock: systemClock });
    const [certificate] = (await ca.roots(new AbortController().signal)) ?? [];
    assert.ok(certificate);
    const store = trustBundleFile(join(disk.path, 'trust-bundle.json'));
    const anchors = new Map([[certificate.fingerprint, { certificate, current: true, neededUntil: Date.now() }]]);
    await store.save({ version: 7, anchors });
    await disk.fill();
    await assert.rejects(store.save({ version: 8, anchors }), { code: 'ERR_SDSD_STATE', hint: /make room/ });
    const kept = await store.load();
    assert.deepEqual([kept.version, [...kept.anchors.keys()]], [7, [certificate.fingerprint]]);
  });

  it('ends a start with an error that names the directory, and the next one works once there is room', async () => {
    await using disk = await smallDisk();
    assert.ok(disk);
    await disk.fill();
    const open = () => openState(join(disk.path, 'state'));
    await assert.rejects(open(), (error: Error & { code?: string }) => {
      assert.equal(error.code, 'ERR_SDSD_STATE');
      assert.ok(error.message.includes(disk.path));
      return true;
    });
    await disk.empty();
    await (await open()).unlock();
  });
});

describe('a directory that this user may not write to', () => {
  it('ends the start of the socket with an error that says what to do (S3)', async () => {
    await using directory = await temporaryDirectory();
    await chmod(directory.path, 0o555);
    await unprivileged(() =>
      assert.rejects(
        listenUnix(createServer(), {
          path: join(directory.path, 'socket'),
          mode: 0o660,
          greeting: Buffer.from('?'),
          setting: '--socket',
          clock: systemClock,
        }),
        { code: 'ERR_SDSD_SOCKET', message: /EACCES/, hint: /may write/ },
      ),
    );
    assert.deepEqual(await readdir(directory.path), []);
  });

  it('ends the start of the state with an error that says what to do', async () => {
    await using directory = await temporaryDirectory();
    await chmod(directory.path, 0o555);
    await unprivileged(() =>
      assert.rejects(openState(join(directory.path, 'state')), {
        code: 'ERR_SDSD_STATE',
        message: /EACCES/,
        hint: /--state-dir/,
      }),
    );
    assert.deepEqual(await readdir(directory.path), []);
  });
});
