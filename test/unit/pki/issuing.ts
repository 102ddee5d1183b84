import { generateKeyPairSync, type KeyObject } from 'node:crypto';
import {
  type Certificate,
  type CertificateTemplate,
  issueCertificate,
  issuerOf,
  parseCertificate,
  randomSerialNumber,
  selfSign,
  subjectPublicKeyInfo,
} from '../../../src/pki/index.js';

/** The present of these tests: any whole second will do. */
export const NOW = Date.UTC(2031, 5, 15, 12);
export const HOUR = 3_600_000;
export const IDENTITY = 'spiffe://cluster.local/ns/default/sa/default';

export interface Keyed {
  readonly certificate: Certificate;
  readonly key: KeyObject;
}

export type Kind = 'P-256' | 'P-384' | 'RSA';

export function newKey(kind: Kind | 'P-224' | 'P-521' = 'P-256'): KeyObject {
  return kind === 'RSA'
    ? generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey
    : generateKeyPairSync('ec', { namedCurve: kind }).privateKey;
}

type Changes = Partial<Omit<CertificateTemplate, 'subjectPublicKeyInfo'>> & { readonly key?: KeyObject };

/** A self-signed CA, valid for a day around NOW unless the changes say otherwise. */
export function root(name: string, { key = newKey(), ...changes }: Changes = {}): Keyed {
  return { key, certificate: parseCertificate(selfSign(caTemplate(name, key, changes), key)) };
}

export function intermediate(name: string, issuer: Keyed, { key = newKey(), ...changes }: Changes = {}): Keyed {
  const der = issueCertificate(caTemplate(name, key, changes), issuerOf(issuer.certificate, issuer.key));
  return { key, certificate: parseCertificate(der) };
}

export function leaf(issuer: Keyed, { key = newKey(), ...changes }: Changes = {}): Keyed {
  const template: CertificateTemplate = {
    subject: {},
    subjectPublicKeyInfo: subjectPublicKeyInfo(key),
    serialNumber: randomSerialNumber(),
    notBefore: NOW - HOUR,
    notAfter: NOW + HOUR,
    uriSans: [IDENTITY],
    profile: { kind: 'leaf' },
    ...changes,
  };
  const der = issueCertificate(template, issuerOf(issuer.certificate, issuer.key));
  return { key, certificate: parseCertificate(der) };
}

function caTemplate(commonName: string, key: KeyObject, changes: Omit<Changes, 'key'>): CertificateTemplate {
  return {
    subject: { commonName },
    subjectPublicKeyInfo: subjectPublicKeyInfo(key),
    serialNumber: randomSerialNumber(),
    notBefore: NOW - 24 * HOUR,
    notAfter: NOW + 24 * HOUR,
    uriSans: [],
    profile: { kind: 'ca' },
    ...changes,
  };
}
