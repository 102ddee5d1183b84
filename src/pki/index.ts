export { type Certificate, parseCertificate, parseCertificates } from './certificate.js';
export { type CertificateRequest, createCsr, parseCsr } from './csr.js';
export {
  type CertificateTemplate,
  type Issuer,
  issueCertificate,
  issuerOf,
  randomSerialNumber,
  selfSign,
} from './issue-certificate.js';
export {
  encodePrivateKey,
  generatePrivateKey,
  type KeyAlgorithm,
  type KeyFormat,
  privateKeyOf,
  readPrivateKey,
  unusableKey,
} from './keys.js';
export { joinPem, type PemBlock, pemBlocks, toPem } from './pem.js';
export { parseSpiffeId, parseTrustDomain, type SpiffeId, workloadIdentity } from './spiffe-id.js';
export { subjectPublicKeyInfo } from './subject-public-key-info.js';
export {
  type IssuedCertificate,
  pathValidity,
  type Validity,
  verifyIssued,
  verifyPath,
} from './verify-chain.js';
export { readX509Fields, type X509Fields } from './x509-fields.js';
