import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { test } from 'node:test';
import type { Command } from 'commander';
import { buildProgram } from '../../../src/cli/program.js';
import { settingList } from '../../../src/config/index.js';
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
  assert.match(out, /SECRET_TTL \(--secret-ttl, secretTtl in the file\)\n.*\n {6}Default: 24h\n/);
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
    [['stats'], /sdsd: unknown command 'stats' \[ERR_SDSD_USAGE\]\n {2}try: status\n/],
    [['run', '--sokcet', 'x'], /unknown option '--sokcet' \[ERR_SDSD_USAGE\]\n {2}try: --socket\n/],
    [['get'], /missing required argument 'name' \[ERR_SDSD_USAGE\]\n {2}try: npx sdsd --help\n/],
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
    /^sdsd: environment variable SECRET_TTL cannot be "x".* \[ERR_SDSD_CONFIG\]\n {2}try: correct or unset SECRET_TTL\n$/,
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
