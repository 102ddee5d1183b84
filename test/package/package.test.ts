/** The packed tarball, as those who install it have it: what the README shows is compiled and run from it. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdir, readdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { publint } from 'publint';
import { formatMessage } from 'publint/utils';
import { temporaryDirectory } from '../support/temp.js';

const run = promisify(execFile);
const root = fileURLToPath(new URL('../..', import.meta.url));

/** A project that has installed the tarball. */
let project: string;
const temporary = await temporaryDirectory();

before(async () => {
  const { stdout } = await run('npm', ['pack', '--silent', '--ignore-scripts', '--pack-destination', temporary.path], {
    cwd: root,
  });
  project = join(temporary.path, 'project');
  const installed = join(project, 'node_modules', 'sdsd');
  await mkdir(installed, { recursive: true });
  await run('tar', ['-xzf', join(temporary.path, stdout.trim()), '-C', installed, '--strip-components=1']);
  // What npm would install beside it.
  for (const name of await readdir(join(root, 'node_modules'))) {
    if (!name.startsWith('.')) await symlink(join(root, 'node_modules', name), join(project, 'node_modules', name));
  }
  await writeFile(join(project, 'package.json'), '{ "type": "module" }');
});

process.on('exit', () => void temporary[Symbol.asyncDispose]());

/** The TypeScript of README.md, each block as a file of its own. */
async function snippets(): Promise<string[]> {
  const text = await readFile(join(root, 'README.md'), 'utf8');
  const blocks = text
    .split(/\n(?! {4}|\n)/)
    .flatMap((part) => [...part.matchAll(/(?:^ {4}.*\n|^\n)+/gm)].map(([block]) => block));
  return blocks.filter((block) => block.includes("from 'sdsd")).map((block) => block.replace(/^ {4}/gm, ''));
}

const OWN_CA = `
import { type CaClient, type Certificate, createDaemon, type DaemonCa, loadConfig, parseCertificates, SdsdError, type SignedChain, silentLogger } from 'sdsd';
import type { IdentitySource, IdentityStore, StoredBundle, TrustBundleStore } from 'sdsd';
import { TestCa, VirtualClock } from 'sdsd/testing';

const clock = new VirtualClock();
const inner = await TestCa.create(clock);
class OwnCa implements DaemonCa {
  readonly description = 'a CA of my own';
  async sign(request: { csr: Buffer; sans: readonly string[]; ttl: number }, signal: AbortSignal): Promise<SignedChain> {
    const { chain, roots } = await inner.sign(request, signal);
    const reread: Certificate[] = parseCertificates(Buffer.from(chain.map(({ pem }) => pem).join('')));
    return { chain: reread, roots };
  }
  async roots(): Promise<readonly Certificate[] | undefined> {
    return [inner.root];
  }
  close(): void {}
}
const ca: CaClient = new OwnCa();
const sources: IdentitySource[] = [];
const [source] = sources;
const stores: { bundle?: TrustBundleStore; identities?: IdentityStore; stored?: StoredBundle } = {};
const config = await loadConfig({ flags: { stateDir: process.argv[2] ?? '' }, env: {}, cwd: process.argv[2] ?? '' });
const daemon = await createDaemon({ config, log: silentLogger, ca, clock, ...(source ? { source } : {}) });
const secret = await daemon.ready;
console.log(secret.identity, daemon.control.status().ca.description, Object.keys(stores).length, SdsdError.name);
await daemon.close();
`;

async function compile(options: Record<string, unknown>): Promise<string> {
  const compilerOptions = {
    ...{ strict: true, skipLibCheck: false, target: 'es2022', lib: ['es2023', 'esnext.disposable'], types: ['node'] },
    ...{ outDir: 'out', rootDir: '.', noEmitOnError: true },
    ...options,
  };
  await writeFile(join(project, 'tsconfig.json'), JSON.stringify({ compilerOptions, files: await sources() }));
  const tsc = join(root, 'node_modules', 'typescript', 'bin', 'tsc');
  const { stdout } = await run(process.execPath, [tsc, '-p', project]).catch((error: { stdout: string }) => error);
  return stdout;
}

async function sources(): Promise<string[]> {
  return (await readdir(project)).filter((name) => name.endsWith('.ts'));
}

describe('the packed tarball', { timeout: 120_000 }, () => {
  it('is in order', async () => {
    const { messages, pkg } = await publint({
      pkgDir: join(project, 'node_modules', 'sdsd'),
      strict: true,
      pack: false,
    });
    assert.deepEqual(
      messages.map((message) => formatMessage(message, pkg, { color: false })),
      [],
    );
  });

  it('holds every file that its pages lead to', async () => {
    const installed = join(project, 'node_modules', 'sdsd');
    const pages = (await readdir(installed, { recursive: true })).filter((name) => name.endsWith('.md'));
    const missing: string[] = [];
    for (const page of pages) {
      const text = await readFile(join(installed, page), 'utf8');
      for (const [, target = ''] of text.matchAll(/\]\(([^)#\s]+)(?:#[^)]*)?\)/g)) {
        if (/^[a-z]+:/.test(target)) continue;
        const path = join(installed, dirname(page), target);
        await readFile(path).catch((error: { code?: string }) => {
          if (error.code !== 'EISDIR') missing.push(`${page}: ${target}`);
        });
      }
    }
    assert.deepEqual(missing, []);
  });

  it("compiles what its README shows, and a CA of one's own, in every way to resolve modules", async () => {
    const shown = await snippets();
    assert.ok(shown.length >= 2, 'README shows the library and its test helpers');
    for (const [index, snippet] of shown.entries()) await writeFile(join(project, `readme-${index}.ts`), snippet);
    await writeFile(join(project, 'own-ca.ts'), OWN_CA);
    assert.equal(await compile({ module: 'nodenext', moduleResolution: 'nodenext' }), '');
    assert.equal(await compile({ module: 'esnext', moduleResolution: 'bundler' }), '');
    const { stdout } = await run(process.execPath, [join(project, 'out', 'own-ca.js'), join(temporary.path, 'state')]);
    assert.equal(stdout, 'spiffe://cluster.local/ns/default/sa/default a CA of my own 0 SdsdError\n');
  });

  it('can be required from CommonJS', async () => {
    const code =
      "const { loadConfig } = require('sdsd'); console.log(typeof loadConfig, typeof require('sdsd/testing').TestCa)";
    const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
    const flags = major === 20 && minor < 19 ? ['--experimental-require-module'] : [];
    const { stdout } = await run(process.execPath, [...flags, '-e', code], { cwd: project });
    assert.equal(stdout, 'function function\n');
  });
});
