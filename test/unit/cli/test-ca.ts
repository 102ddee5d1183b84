import type { KeyObject } from 'node:crypto';
import {
  type Certificate,
  encodePrivateKey,
  generatePrivateKey,
  issueCertificate,
  issuerOf,
  parseCertificate,
  randomSerialNumber,
  selfSign,
  subjectPublicKeyInfo,
} from '../../../src/pki/index.js';

export const NOW = Date.UTC(2030, 0, 1);
const HOUR = 3_600_000;

/** A root, and leaves under it, with fixed times around {@link NOW}. */
export async function testCa() {
  const rootKey = await generatePrivateKey({ kind: 'ecdsa', curve: 'P-256' });
  const root = parseCertificate(
    selfSign(
      {
        subject: { commonName: 'test root' },
        subjectPublicKeyInfo: subjectPublicKeyInfo(rootKey),
        serialNumber: randomSerialNumber(),
        notBefore: NOW - HOUR,
        notAfter: NOW + 1_000 * HOUR,
        uriSans: [],
        profile: { kind: 'ca' },
      },
      rootKey,
    ),
  );
  const issuer = issuerOf(root, rootKey);
  const certify = (spki: Buffer, identity: string): Certificate =>
    parseCertificate(
      issueCertificate(
        {
          subject: {},
          subjectPublicKeyInfo: spki,
          serialNumber: randomSerialNumber(),
          notBefore: NOW - HOUR,
          notAfter: NOW + 23 * HOUR + 59 * 60_000,
          uriSans: [identity],
          profile: { kind: 'leaf' },
        },
        issuer,
      ),
    );
  const leaf = async (identity: string): Promise<{ key: KeyObject; keyPem: Buffer; certificate: Certificate }> => {
    const key = await generatePrivateKey({ kind: 'ecdsa', curve: 'P-256' });
    return { key, keyPem: encodePrivateKey(key, 'pkcs8'), certificate: certify(subjectPublicKeyInfo(key), identity) };
  };
  return { root, certify, leaf };
}
