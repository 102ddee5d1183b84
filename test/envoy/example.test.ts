import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { envoyReleases } from '../support/envoy.js';

const { skip } = await envoyReleases();

const program = fileURLToPath(new URL('../../examples/envoy-mtls/run.ts', import.meta.url));

test('the example with two Envoys answers every request but those of the intruder', { skip }, async () => {
  const { code, output } = await run(['--seconds', '6', '--ttl', '3s']);
  assert.equal(code, 0, output);
  assert.match(output, /Every request of the client was answered, and none of the intruder/);
});

test('the example ends at Ctrl-C', { skip }, async () => {
  const { code, output } = await run([], /certificate 1/);
  assert.equal(code, 130, output);
});

/** @param interruptAt output at which the program is told to end. */
async function run(args: readonly string[], interruptAt?: RegExp): Promise<{ code: number | null; output: string }> {
  const child = spawn(process.execPath, ['--import', import.meta.resolve('tsx'), program, ...args]);
  let output = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (text: string) => {
      output += text;
      if (interruptAt?.test(output)) child.kill('SIGINT');
    });
  }
  await once(child, 'close');
  return { code: child.exitCode, output };
}
