/** The program as a process: what happens to it from outside. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { createWorkplace, mainModule } from '../../support/daemon.js';
import { SdsTestClient } from '../../support/sds-client.js';
import { until } from '../../support/until.js';

describe('sdsd run', { timeout: 40_000 }, () => {
  it('ends at SIGTERM although nobody reads its log', async (t) => {
    await using place = await createWorkplace();
    const child = spawn(process.execPath, [...mainModule(), 'run'], {
      cwd: place.directory,
      env: { PATH: process.env['PATH'], SDSD_LOG_LEVEL: 'debug' },
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    child.stderr.pause();
    const exited = once(child, 'exit');
    const client = new SdsTestClient(place.socket);
    try {
      await until('it serves', () => client.fetch({ resourceNames: ['default'] }));
      // Each stream is worth two lines: more than a pipe holds.
      for (let round = 0; round < 20; round++) {
        t.diagnostic(`round ${round}`);
        const streams = Array.from({ length: 100 }, () => client.stream());
        for (const stream of streams) stream.send({ resourceNames: ['default'] });
        await Promise.all(streams.map((stream) => stream.next()));
        for (const stream of streams) stream.halfClose();
        await Promise.all(streams.map(({ ended }) => ended));
      }
    } finally {
      client.close();
      child.kill('SIGTERM');
    }
    const late = setTimeout(() => child.kill('SIGKILL'), 10_000);
    assert.deepEqual(await exited, [0, null]);
    clearTimeout(late);
  });
});

describe('npm start', { timeout: 40_000 }, () => {
  it('ends with its parent: npm hands a signal to its shell alone', async () => {
    await using place = await createWorkplace();
    const script = fileURLToPath(new URL('../../../scripts/start.mjs', import.meta.url));
    // The second command keeps the shell from becoming the program itself.
    const shell = spawn('sh', ['-c', `"${process.execPath}" "${script}"; true`], {
      cwd: place.directory,
      env: { PATH: process.env['PATH'] },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let output = '';
    const closed = once(shell, 'close');
    for (const stream of [shell.stdout, shell.stderr])
      stream.on('data', (text) => {
        output += text;
      });
    await until('it serves', () => output.includes('is serving secrets'), 40_000);
    shell.kill('SIGTERM');
    // The pipes are closed when the last process that has them is gone.
    await closed;
    assert.match(output, /SIGTERM: shutting down/);
  });
});
