/**
 * The last look at a secret before it may be sent, at the very bytes that go out: what Envoy would reject, or, worse, accept
 * and then verify nobody, or refuse everybody, with it.
 */
import { SdsdError } from '../errors.js';
import { parseCertificates, readPrivateKey } from '../pki/index.js';

/** Throws an SdsdError unless these are a leaf's chain and the key that fits it, both in PEM. */
export function assertCertificatePair(chain: Buffer, key: Buffer): void {
  const [leaf] = parseCertificates(chain);
  // A key that does not fit poisons the trust anchors beside it: Envoy then rejects these for the key's fault.
  if (!leaf?.x509.checkPrivateKey(readPrivateKey(key))) {
    throw new SdsdError('ERR_SDSD_CHAIN', 'the private key does not fit the certificate', {
      hint: 'use the key for which the certificate was issued',
    });
  }
  if (leaf.isCa)
    throw new SdsdError('ERR_SDSD_CHAIN', 'the first certificate of the chain is that of a CA', {
      hint: 'put the leaf first',
    });
}

/** Throws an SdsdError unless these are trust anchors in PEM: at least one, and nothing else. */
export function assertTrustAnchors(roots: Buffer): void {
  // An empty validation context turns verification off; a root that is no CA refuses every peer.
  for (const root of parseCertificates(roots)) {
    if (!root.isCa)
      throw new SdsdError('ERR_SDSD_CHAIN', `a trust anchor is no CA: SHA-256 ${root.fingerprint}`, {
        hint: 'give only the certificates of CAs as roots',
      });
  }
}
