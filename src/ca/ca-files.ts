import { readFile } from 'node:fs/promises';
import { messageOf, SdsdError } from '../errors.js';
import { type Certificate, parseCertificates, readPrivateKey, verifyPath } from '../pki/index.js';
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
  const roots = files.root === undefined ? [rootOf(chain, files)] : await readAs(files.root, parseCertificates);
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
