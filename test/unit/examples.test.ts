import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { it } from 'node:test';
import { loadConfig } from '../../src/config/index.js';

const unit = readFileSync(new URL('../../examples/systemd/sdsd.service', import.meta.url), 'utf8');

it('the systemd unit sets what sdsd understands, and allows no core file', async () => {
  const values = (key: string): string[] =>
    unit.split('\n').flatMap((line) => (line.startsWith(`${key}=`) ? [line.slice(key.length + 1)] : []));
  const env = Object.fromEntries(values('Environment').map((pair) => pair.split(/=(.*)/s).slice(0, 2)));
  const config = await loadConfig({ flags: {}, env: { ...env, STATE_DIRECTORY: '/var/lib/sdsd' }, cwd: '/' });
  assert.equal(config.socket, '/run/sdsd/sds.sock');
  assert.equal(config.controlSocket, '/run/sdsd/admin.sock');
  assert.equal(config.stateDir, '/var/lib/sdsd');
  assert.deepEqual(values('LimitCORE'), ['0']);
  // The state directory must be this user's alone, or sdsd refuses it.
  assert.deepEqual(values('StateDirectoryMode'), ['0700']);
});
