import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { Writable } from 'node:stream';
import { test } from 'node:test';
import type { Command } from 'commander';
import { outputStream, ReaderGone } from '../../../src/cli/io.js';
import { buildProgram } from '../../../src/cli/program.js';
import { reportError } from '../../../src/cli/report.js';
import { EXAMPLE_FILE, settingList } from '../../../src/config/index.js';
import { SdsdError } from '../../../src/errors.js';
import { cli, fakeIo } from './fake-io.js';

function allCommands(command: Command): readonly Command[] {
  return [command, ...command.commands.flatMap(allCommands)];
}

test('the help of run names every flag, variable, key and default of the settings', async () => {
  const { code, out } = await cli(['run', '--help']);
  assert.equal(code, 0);
  for (const { key, flag, variables } of settingList) {
    for (const name of [key, ...(flag ? [flag] : []), ...variables]) assert.ok(out.includes(name), name);
  }
  for (const { allowed } of settingList) assert.ok(out.includes(`Allowed: ${allowed}\n`), allowed);
  assert.match(
    out,
    /SECRET_TTL \(--secret-ttl, secretTtl in the file\)\n.*\n {6}Allowed: a duration such as .*, from 2s to .*\n {6}Default: 24h\n/,
  );
  assert.match(out, /SDSD_IDENTITIES .*\n.*\n.*\n {6}Several: .*commas in the variable, write a map/);
  assert.ok(out.includes(EXAMPLE_FILE.replace(/^(?=.)/gm, '  ')));
});

test('every command and option says what it does', () => {
  for (const command of allCommands(buildProgram(fakeIo()))) {
    assert.notEqual(command.description(), '', command.name());
    for (const option of command.options) assert.notEqual(option.description, '', `${command.name()} ${option.flags}`);
  }
});

test('every command that takes options shows an example', async () => {
  const commands = ['run', 'get', 'status', 'rotate', 'rotate-root', 'issue', 'ca export', 'envoy bootstrap'];
  for (const command of commands) {
    const { out } = await cli([...command.split(' '), '--help']);
    assert.match(out, new RegExp(`\\n {2}(?:\\w+=\\w+ )?sdsd ${command}`), command);
  }
});

test('suggests what was meant, and exits with 2 for a wrong command line', async () => {
  const cases: readonly [args: readonly string[], err: RegExp][] = [
    [['stats'], /sdsd: unknown command 'stats' \[ERR_SDSD_USAGE\]\n {2}try: status \(npx sdsd --help lists all\)\n/],
    [
      ['run', '--sokcet', 'x'],
      /unknown option '--sokcet' \[ERR_SDSD_USAGE\]\n {2}try: --socket \(npx sdsd run --help lists all\)\n/,
    ],
    [['get'], /missing required argument 'name' \[ERR_SDSD_USAGE\]\n {2}try: npx sdsd get --help\n/],
    [['ca', 'export', 'x'], /\n {2}try: npx sdsd ca export --help\n/],
    [['help', 'bogus'], /unknown command 'bogus' \[ERR_SDSD_USAGE\]\n {2}try: npx sdsd --help\n/],
    [['help', 'stats'], /try: status /],
    [['ca', 'help', 'bogus'], /unknown command 'bogus' .*\n {2}try: npx sdsd ca --help\n/],
    [['help', 'ca', 'exprt'], /unknown command 'exprt' .*\n {2}try: export /],
    [['get', 'a', 'b'], /too many arguments/],
    [['issue', 'spiffe://a/b'], /required option '--out <dir>'/],
    [[], /Usage: sdsd/],
    [['ca'], /Usage: sdsd ca/],
  ];
  for (const [args, err] of cases) {
    const result = await cli(args);
    assert.equal(result.code, 2, args.join(' '));
    assert.equal(result.out, '');
    assert.match(result.err, err);
  }
});

test('prints a wrong setting with its cure, and no stack unless asked for', async () => {
  const env = { SECRET_TTL: 'x' };
  const { code, err } = await cli(['run'], { env });
  assert.equal(code, 2);
  assert.match(
    err,
    /^sdsd: environment variable SECRET_TTL cannot be "x": it is not a duration \[ERR_SDSD_CONFIG\]\n {2}try: SECRET_TTL=24h \(allowed: a duration .*\)\n$/,
  );
  assert.match((await cli(['--verbose', 'run'], { env })).err, /\n {4}at /);
  assert.match((await cli(['run', '--verbose'], { env })).err, /\n {4}at /);
});

test('flags reach the settings, and come before variables', async () => {
  const env = { SECRET_TTL: '1h', TRUST_DOMAIN: 'Bad' };
  assert.match(
    (await cli(['run', '--secret-ttl', '1'], { env: { SECRET_TTL: '1h' } })).err,
    /flag --secret-ttl cannot be "1"/,
  );
  assert.match((await cli(['run'], { env })).err, /TRUST_DOMAIN/);
  assert.match(
    (await cli(['run', '--trust-domain', 'good', '--identity', 'a=b'], { env })).err,
    /flag --identity cannot be "a=b"/,
  );
  assert.match((await cli(['run', '--config', 'absent.yaml'])).err, /\/dev\/null\/absent\.yaml: ENOTDIR/);
});

test('the help of every command tells what --verbose and --quiet do, and `help` shows it too', async () => {
  for (const command of ['run', 'get', 'status', 'rotate', 'rotate-root', 'issue', 'ca export', 'envoy bootstrap']) {
    const { code, out } = await cli([...command.split(' '), '--help']);
    assert.equal(code, 0);
    assert.match(out, /-v, --verbose .*level debug/);
    assert.match(out.replace(/\s+/g, ' '), /-q, --quiet rotate, rotate-root and issue print nothing on success/);
    assert.deepEqual(await cli(['help', ...command.split(' ')]), { code, out, err: '' });
  }
  assert.match((await cli(['issue', '--help'])).out, /^Usage: sdsd issue <spiffe-id> --out <dir> \[options\]\n/);
});

test('output that cannot be written is an error, and a reader that has gone is none', async () => {
  const full = new SdsdError('ERR_SDSD_OUTPUT', 'cannot write to the standard output: it is full', {
    hint: 'make room',
  });
  for (const args of [['version'], ['--help'], ['envoy', 'bootstrap']]) {
    const { code, err } = await cli(args, { flush: async () => Promise.reject(full) });
    assert.equal(code, 1);
    assert.equal(err, 'sdsd: cannot write to the standard output: it is full [ERR_SDSD_OUTPUT]\n  try: make room\n');
    const gone = await cli(args, { flush: async () => Promise.reject(new ReaderGone('EPIPE')) });
    assert.deepEqual([gone.code, gone.err], [0, '']);
  }
  const wrong = await cli(['bogus'], { flush: async () => Promise.reject(full) });
  assert.equal(wrong.code, 2);
  assert.doesNotMatch(wrong.err, /ERR_SDSD_OUTPUT/);
});

test('the program itself exits with 1 when its output is lost', { skip: !existsSync('/dev/full') }, () => {
  const run = (shell: string) =>
    spawnSync('bash', ['-c', `set -o pipefail; ${process.execPath} --import tsx src/main.ts ${shell}`], {
      encoding: 'utf8',
    });
  const lost = run('envoy bootstrap > /dev/full');
  assert.equal(lost.status, 1);
  assert.match(lost.stderr, /^sdsd: cannot write to the standard output: ENOSPC.* \[ERR_SDSD_OUTPUT\]\n {2}try: /);
  const { status, stderr } = run('run --help | true');
  assert.deepEqual({ status, stderr }, { status: 0, stderr: '' });
});

test('the example with two Envoys shows its usage for an option that it does not know', () => {
  for (const args of [['--bogus'], ['--seconds', 'x'], ['--ttl', '1'], ['--ttl', '1s']]) {
    const { status, stdout, stderr } = spawnSync(
      process.execPath,
      ['--import', 'tsx', 'examples/envoy-mtls/run.ts', ...args],
      { encoding: 'utf8' },
    );
    assert.deepEqual([status, stdout], [2, '']);
    assert.match(stderr, /^.*\n\nUsage: npx tsx examples\/envoy-mtls\/run\.ts/);
  }
});

test('an output stream tells its first failure once, when asked, and hears of the others', async () => {
  const errors = [
    Object.assign(new Error('full'), { code: 'ENOSPC' }),
    Object.assign(new Error('gone'), { code: 'EPIPE' }),
  ];
  const stream = new Writable({ autoDestroy: false, write: (_chunk, _encoding, done) => done(errors.shift()) });
  const output = outputStream(stream, 'the output');
  output.write('a');
  await assert.rejects(output.flush(), { code: 'ERR_SDSD_OUTPUT', message: 'cannot write to the output: full' });
  await output.flush();
  const closed = outputStream(
    new Writable({ write: (_chunk, _encoding, done) => done(Object.assign(new Error('gone'), { code: 'EPIPE' })) }),
    'it',
  );
  closed.write('a');
  closed.write('b');
  await assert.rejects(closed.flush(), ReaderGone);
});

test('an error of the operating system has a code too', () => {
  const io = fakeIo();
  const error = (syscall: string) => Object.assign(new Error(`EIO: i/o error, ${syscall}`), { code: 'EIO', syscall });
  assert.equal(reportError(error('read'), io, false), 1);
  assert.equal(reportError(error('connect'), io, false), 1);
  assert.match(io.err(), /EIO: i\/o error, read \[ERR_SDSD_OUTPUT\]\n {2}try: .*\n.*connect \[ERR_SDSD_SOCKET\]\n/);
});

test('prints its version', async () => {
  assert.match((await cli(['--version'])).out, /^\d+\.\d+\.\d+\n$/);
  assert.match((await cli(['version'])).out, /^sdsd \d+\.\d+\.\d+ \(Node \d+\./);
  assert.equal(JSON.parse((await cli(['version', '-o', 'json'])).out).node, process.versions.node);
});

test('prints a configuration for Envoy', async () => {
  const args = [
    'envoy',
    'bootstrap',
    '--socket',
    '/run/s',
    '--delta',
    '--node-id',
    'me',
    '--egress-port',
    '9000',
    '--peer',
    'spiffe://a/b/',
  ];
  const { code, out } = await cli(args);
  assert.equal(code, 0);
  for (const part of [/path: \/run\/s/, /DELTA_GRPC/, /id: me/, /port_value: 9000/, /prefix: "?spiffe:\/\/a\/b\/"?/])
    assert.match(out, part);
  const { code: wrong, err } = await cli(['envoy', 'bootstrap', '--admin-port', 'x']);
  assert.equal(wrong, 2);
  assert.match(err, /--admin-port x is not a port/);
});

test('loads no gRPC, no certificates and no YAML before a command needs them', () => {
  const script = `
    const { runCli } = await import('./src/cli/program.ts');
    const { processIo } = await import('./src/cli/io.ts');
    await runCli(['version'], processIo());
    const { createRequire } = await import('node:module');
    const loaded = Object.keys(createRequire(process.cwd() + '/x.js').cache);
    console.log(loaded.filter((path) => /grpc|protobufjs|node-forge|yaml/.test(path)).length, process.moduleLoadList.includes('NativeModule http2'));
  `;
  const out = execFileSync(process.execPath, ['--import', 'tsx', '--input-type=module', '-e', script], {
    encoding: 'utf8',
  });
  assert.match(out, /\n0 false\n$/);
});
