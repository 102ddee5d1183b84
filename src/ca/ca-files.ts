import type { KeyObject } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { messageOf, SdsdError } from '../errors.js';
import { type Certificate, parseCertificates, readPrivateKey, readX509Fields, verifyPath } from '../pki/index.js';
import { type Authority, authorityOf } from './authority.js';

/** Paths of PEM files that hold a CA of the user's own. */
export interface CaFiles {
  /** The CA certificate, perhaps followed by what is above it, up to the root. */
  readonly certificate: string;
  readonly key: string;
  /** The roots; when left out, the last certificate of `certificate` is the root. */
  readonly root?: string;
}

/**
 * The authority that the files describe. Throws `ERR_SDSD_CA_FILES`, which names the file, when one cannot be read, the
 * key is another one's, the certificate may not sign, or its chain does not lead to a root at `now` (milliseconds since
 * the epoch). The mode of the key file is the user's affair: Kubernetes mounts secrets readable for all.
 */
export async function readCaFiles(files: CaFiles, now: number): Promise<Authority> {
  const chain = await readAs(files.certificate, parseCertificates);
  const key = await readAs(files.key, readPrivateKey);
  const order = orderFault(chain, key);
  if (order) throw unusable(files.certificate, order, 'write the CA that signs first, then each issuer, the root last');
  const roots = files.root === undefined ? [rootOf(chain, files)] : await readAs(files.root, parseCertificates);
  const [intermediate] = files.root === undefined ? [] : roots.filter(({ selfSigned }) => !selfSigned);
  if (files.root !== undefined && intermediate) {
    const name = `certificate ${roots.indexOf(intermediate) + 1} of it, ${nameOf(intermediate)},`;
    throw unusable(
      files.root,
      `${name} is an intermediate: it is issued by another CA, and not by itself`,
      'give the root there, and put the intermediate into the file of the CA certificate',
    );
  }
  const [signer] = chain;
  if (signer === undefined || !signer.x509.checkPrivateKey(key)) {
    throw unusable(
      files.key,
      `it is not the key of ${files.certificate}`,
      'give the key and the certificate of one CA',
    );
  }
  if (!maySign(signer)) {
    throw unusable(files.certificate, 'it may not sign certificates', 'give a CA certificate that has keyCertSign');
  }
  try {
    verifyPath({ chain, roots, now });
  } catch (cause) {
    throw unusable(
      files.certificate,
      messageOf(cause),
      'give a CA that is valid now, with all between it and its root',
      cause,
    );
  }
  const isRoot = ({ fingerprint }: Certificate): boolean => roots.some((root) => root.fingerprint === fingerprint);
  return authorityOf(
    { certificate: signer, key },
    chain.filter((certificate) => !isRoot(certificate)),
    roots,
  );
}

/** What is wrong with the order of a CA's certificates, whose first should be that of the key. */
function orderFault(chain: readonly Certificate[], key: KeyObject): string | undefined {
  const twice = chain.findIndex(({ fingerprint }, at) => chain.findIndex((c) => c.fingerprint === fingerprint) < at);
  if (twice !== -1) {
    const first = chain.findIndex(({ fingerprint }) => fingerprint === chain[twice]?.fingerprint);
    return `certificates ${first + 1} and ${twice + 1} of it are the same`;
  }
  const signer = chain.findIndex(({ x509 }) => x509.checkPrivateKey(key));
  if (signer > 0 && signer === chain.length - 1)
    return 'it is in reverse order: the certificate of the key is the last';
  if (signer > 0) return `the certificate of the key is number ${signer + 1} of it, and should be the first`;
  const root = chain.findIndex(({ selfSigned }) => selfSigned);
  if (root === -1 || root === chain.length - 1) return undefined;
  return `the root is number ${root + 1} of it, before number ${root + 2}, and should be the last`;
}

/** What OpenSSL's strict mode, and whoever uses it, refuses in the certificates of a CA; the end of a sentence for each. */
export function strictFaults(certificates: readonly Certificate[]): string[] {
  return certificates.flatMap((certificate) => {
    const { keyUsage, subjectKeyIdentifier } = readX509Fields(certificate.der);
    const missing = [
      ...(keyUsage === undefined ? ['key usage'] : []),
      ...(subjectKeyIdentifier === undefined ? ['subject key identifier'] : []),
    ];
    return missing.length > 0 ? [`${nameOf(certificate)} has no ${missing.join(' and no ')}`] : [];
  });
}

function nameOf({ x509 }: Certificate): string {
  return x509.subject.split('\n').join(', ') || 'with an empty subject';
}

function rootOf(chain: readonly Certificate[], files: CaFiles): Certificate {
  const last = chain.at(-1);
  if (last?.selfSigned) return last;
  const hint = 'append the root to it, or configure the root in a file of its own';
  throw unusable(files.certificate, 'its last certificate is not a root', hint);
}

/** Basic constraints and key usage, as OpenSSL weighs them. */
function maySign({ isCa, x509 }: Certificate): boolean {
  return isCa && x509.ca;
}

async function readAs<T>(file: string, reader: (content: Buffer) => T): Promise<T> {
  try {
    return reader(await readFile(file));
  } catch (cause) {
    const hint = cause instanceof SdsdError ? cause.hint : undefined;
    throw unusable(file, messageOf(cause), hint ?? 'check its path, and that sdsd may read it', cause);
  }
}

function unusable(file: string, fault: string, hint: string, cause?: unknown): SdsdError {
  return new SdsdError('ERR_SDSD_CA_FILES', `the CA file ${file} cannot be used: ${fault}`, { hint, cause });
}
