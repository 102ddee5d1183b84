/** What the control socket asks of a daemon, with the real parts behind it. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { systemClock } from '../../../src/clock.js';
import { createCsr, generatePrivateKey, toPem } from '../../../src/pki/index.js';
import { TestCa } from '../../../src/testing/index.js';
import { createWorkplace } from '../../support/daemon.js';
import { startDaemonInProcess } from '../../support/daemon-in-process.js';

async function csrFor(identity: string): Promise<string> {
  const key = await generatePrivateKey({ kind: 'ecdsa', curve: 'P-256' });
  return toPem('CERTIFICATE REQUEST', createCsr({ key, uriSans: [identity] }));
}

describe('issue', () => {
  it('signs for workloads of the own trust domain, for others when asked, and never for a trust domain itself', async () => {
    await using place = await createWorkplace();
    await using daemon = await startDaemonInProcess(place, { ca: await TestCa.create(systemClock) });
    const issue = async (identity: string, more: { foreignTrustDomain?: boolean } = {}) =>
      daemon.control.issue({ identity, csrPem: await csrFor(identity), requester: 'alice, process 7', ...more });
    assert.match((await issue('spiffe://cluster.local/ns/a/sa/b')).chainPem, /BEGIN CERTIFICATE/);
    assert.match(
      daemon.log(),
      /certificate issued by hand identity=spiffe:\/\/cluster\.local\/ns\/a\/sa\/b .*by="alice, process 7"/,
    );
    const foreign = 'spiffe://example.org/ns/a/sa/b';
    await assert.rejects(issue(foreign), { code: 'ERR_SDSD_SPIFFE_ID', hint: /--foreign-trust-domain/ });
    assert.match((await issue(foreign, { foreignTrustDomain: true })).chainPem, /BEGIN CERTIFICATE/);
    await assert.rejects(issue('spiffe://cluster.local'), { code: 'ERR_SDSD_SPIFFE_ID', message: /has no path/ });
  });
});

describe('status', () => {
  it('lists names in one order, and the roots with their ends', async () => {
    await using place = await createWorkplace();
    const ca = await TestCa.create(systemClock);
    const env = { SDSD_IDENTITIES: 'zeta=spiffe://cluster.local/z,alpha=spiffe://cluster.local/a' };
    await using daemon = await startDaemonInProcess(place, { ca, env });
    await daemon.ready;
    const { secrets, roots, ca: caStatus } = daemon.control.status();
    assert.deepEqual(
      secrets.map(({ name }) => name),
      ['default', 'alpha', 'zeta', 'ROOTCA'],
    );
    assert.equal(roots.length, 1);
    assert.equal(roots[0]?.fingerprint, ca.root.fingerprint);
    assert.equal(roots[0]?.current, true);
    assert.equal(Date.parse(roots[0]?.notAfter ?? ''), ca.root.notAfter);
    assert.ok(Date.parse(caStatus.notAfter ?? '') <= ca.root.notAfter);
  });
});
