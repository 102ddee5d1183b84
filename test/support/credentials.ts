import { createCsr, encodePrivateKey, generatePrivateKey, toPem } from '../../src/pki/index.js';
import type { Daemon } from './daemon.js';
import type { ClientCredentials } from './handshakes.js';

/** A key of our own, with a certificate that the daemon's CA has signed for this SPIFFE ID. */
export async function credentialsFrom(daemon: Daemon, identity: string): Promise<ClientCredentials> {
  const key = await generatePrivateKey({ kind: 'ecdsa', curve: 'P-256' });
  const csrPem = toPem('CERTIFICATE REQUEST', createCsr({ key, uriSans: [identity] }));
  const { chainPem, rootsPem } = await daemon.control.issue({ identity, csrPem });
  return { cert: chainPem, key: encodePrivateKey(key, 'pkcs8').toString(), ca: rootsPem };
}
