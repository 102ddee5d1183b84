/** What `npm start` and `npm test` do first on a fresh clone: dependencies and the build, each only when it is missing or old. */
import { spawnSync } from 'node:child_process';
import { chmodSync, existsSync, readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const root = fileURLToPath(new URL('..', import.meta.url));

/** Runs a command in the project's folder with its output shown; ends this process if it fails. */
export function run(command, args) {
  const { status, error } = spawnSync(command, args, { cwd: root, stdio: 'inherit' });
  if (error) {
    console.error(`sdsd: cannot run ${command}: ${error.message}`);
    process.exit(1);
  }
  if (status !== 0) process.exit(status ?? 1);
}

/** Installs exactly what package-lock.json says, unless it is there. */
export function installDependencies() {
  const [major = 0] = process.versions.node.split('.').map(Number);
  if (major < 20) {
    console.error(`sdsd: Node ${process.versions.node} is too old: install Node 20 or newer (24 is recommended)`);
    process.exit(1);
  }
  const installed = join(root, 'node_modules', '.package-lock.json');
  if (existsSync(installed) && statSync(installed).mtimeMs >= statSync(join(root, 'package-lock.json')).mtimeMs) return;
  run('npm', ['ci', '--no-audit', '--no-fund', '--loglevel=error']);
}

/** Compiles src/ to dist/, unless dist/ is newer. */
export function build() {
  const built = join(root, 'dist', 'main.js');
  if (!existsSync(built) || statSync(built).mtimeMs <= newest(join(root, 'src'))) {
    run(process.execPath, [join(root, 'node_modules', 'typescript', 'bin', 'tsc'), '-p', 'tsconfig.build.json']);
  }
  // `npx sdsd` runs it as a program. npm sets this once, when it links the package, and a new dist/ has lost it.
  if (!(statSync(built).mode & 0o100)) chmodSync(built, 0o755);
}

/** Runs what changes this folder; ends with one sentence when this user may not. */
export function prepare(steps) {
  try {
    steps();
  } catch (error) {
    console.error(`sdsd: cannot prepare ${root}: ${error.message}`);
    console.error('  try: as the user whom this folder belongs to, once: npm ci && npm run build');
    process.exit(1);
  }
}

/** The latest change of any file below a folder, in ms since the epoch. */
function newest(folder) {
  return Math.max(
    ...readdirSync(folder, { withFileTypes: true }).map((entry) => {
      const path = join(folder, entry.name);
      return entry.isDirectory() ? newest(path) : statSync(path).mtimeMs;
    }),
  );
}
