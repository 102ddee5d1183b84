import { createPrivateKey } from 'node:crypto';
import { isoSeconds } from '../clock.js';
import { printable, printableJson } from '../log.js';
import type { Certificate } from '../pki/index.js';
import { parseCertificates } from '../pki/index.js';
import { type CertificateView, viewCertificate } from './certificates.js';
import { json, timeLeft } from './format.js';
import type { ReceivedData, ReceivedSecret } from './sds-client.js';

export interface ShowOptions {
  readonly format: 'text' | 'json' | 'pem';
  readonly withKey: boolean;
  /** JSON in one line. Default: false. */
  readonly compact?: boolean;
  /** Milliseconds since the epoch. */
  readonly now: number;
}

/** A received secret in the format that was asked for. Throws ERR_SDSD_PEM or ERR_SDSD_CERTIFICATE for a broken one. */
export function showSecret(secret: ReceivedSecret, options: ShowOptions): string {
  switch (options.format) {
    case 'pem':
      return pemOf(secret, options.withKey);
    case 'json':
      return options.compact
        ? `${printableJson(viewOf(secret, options.withKey))}\n`
        : json(viewOf(secret, options.withKey));
    case 'text':
      return textOf(secret, options.now);
  }
}

function pemOf(secret: ReceivedSecret, withKey: boolean): string {
  if (secret.kind === 'validation-context') return inlinePem(secret.trustedCa);
  return inlinePem(secret.certificateChain) + (withKey ? keyPem(secret.privateKey) : '');
}

/** The key as PKCS#8, whatever Envoy gets: many programs read no other form. */
function keyPem(data: ReceivedData): string {
  if ('file' in data) return inlinePem(data);
  try {
    return createPrivateKey(data.bytes).export({ type: 'pkcs8', format: 'pem' }).toString();
  } catch {
    return inlinePem(data);
  }
}

function inlinePem(data: ReceivedData): string {
  if ('file' in data) return `# in the file ${data.file}\n`;
  const text = data.bytes.toString('utf8');
  return text.endsWith('\n') ? text : `${text}\n`;
}

function viewOf(secret: ReceivedSecret, withKey: boolean): unknown {
  const { name, kind, version } = secret;
  if (secret.kind === 'validation-context') {
    return { name, kind, version, ...dataView('trustedCa', secret.trustedCa), roots: viewsOf(secret.trustedCa) };
  }
  return {
    name,
    kind,
    version,
    certificates: viewsOf(secret.certificateChain),
    keyMatches: keyMatches(secret),
    ...dataView('certificateChain', secret.certificateChain),
    ...(withKey ? dataView('privateKey', secret.privateKey) : {}),
  };
}

function dataView(key: string, data: ReceivedData): Readonly<Record<string, string>> {
  return 'file' in data ? { [`${key}File`]: data.file } : { [key]: data.bytes.toString('utf8') };
}

function viewsOf(data: ReceivedData): readonly CertificateView[] {
  return certificatesOf(data).map(viewCertificate);
}

function certificatesOf(data: ReceivedData): readonly Certificate[] {
  return 'file' in data ? [] : parseCertificates(data.bytes);
}

/** Whether the key belongs to the leaf; null when one of them is in a file, or the key cannot be read. */
function keyMatches(secret: ReceivedSecret & { kind: 'tls-certificate' }): boolean | null {
  const [leaf] = certificatesOf(secret.certificateChain);
  if (!leaf || 'file' in secret.privateKey) return null;
  try {
    return leaf.x509.checkPrivateKey(createPrivateKey(secret.privateKey.bytes));
  } catch {
    return null;
  }
}

function textOf(secret: ReceivedSecret, now: number): string {
  const head = `${printable(secret.name)}, version ${printable(secret.version)}: `;
  if (secret.kind === 'validation-context') {
    if ('file' in secret.trustedCa) return `${head}roots in the file ${printable(secret.trustedCa.file)}\n`;
    const roots = certificatesOf(secret.trustedCa);
    const count = roots.length === 1 ? 'one root' : `${roots.length} roots`;
    return `${head}${count}\n${roots.map((root) => rows(rootRows(root, now))).join('\n')}`;
  }
  if ('file' in secret.certificateChain) {
    return `${head}certificate in the file ${printable(secret.certificateChain.file)}\n`;
  }
  const [leaf, ...others] = certificatesOf(secret.certificateChain);
  if (!leaf) return `${head}no certificate\n`;
  return `${head}certificate and key\n${rows([...leafRows(leaf, now), ['private key', keyRemark(secret)], ...chainRows(others, now)])}`;
}

type Row = readonly [label: string, value: string];

function leafRows(leaf: Certificate, now: number): readonly Row[] {
  const view = viewCertificate(leaf);
  return [
    ['identity', view.uriSans.join(', ') || 'none (no URI in the certificate)'],
    ['subject', view.subject || 'empty'],
    ['issuer', view.issuer || 'empty'],
    ['serial', view.serialNumber],
    ['not before', view.notBefore],
    ['not after', `${view.notAfter} (${timeLeft(leaf.notAfter, now)})`],
    ['key', view.key],
    ['SHA-256', view.fingerprint],
  ];
}

function keyRemark(secret: ReceivedSecret & { kind: 'tls-certificate' }): string {
  if ('file' in secret.privateKey) return `in the file ${secret.privateKey.file}`;
  switch (keyMatches(secret)) {
    case true:
      return 'matches the certificate (not shown: --with-key)';
    case false:
      return 'DOES NOT MATCH the certificate';
    case null:
      return 'cannot be read';
  }
}

function chainRows(others: readonly Certificate[], now: number): readonly Row[] {
  if (others.length === 0) return [['chain', 'the certificate alone']];
  return others.map((certificate, index) => {
    const name = viewCertificate(certificate).subject || 'empty subject';
    const until = `until ${isoSeconds(certificate.notAfter)}, ${timeLeft(certificate.notAfter, now)}`;
    return [index === 0 ? 'chain' : '', `${name} (${until})`];
  });
}

function rootRows(root: Certificate, now: number): readonly Row[] {
  const view = viewCertificate(root);
  return [
    ['subject', view.subject || 'empty'],
    ...(view.uriSans.length > 0 ? [['URI', view.uriSans.join(', ')] as const] : []),
    ...(root.selfSigned ? [] : [['issuer', view.issuer] as const]),
    ['serial', view.serialNumber],
    ['not before', view.notBefore],
    ['not after', `${view.notAfter} (${timeLeft(root.notAfter, now)})`],
    ['key', view.key],
    ['SHA-256', view.fingerprint],
  ];
}

function rows(lines: readonly Row[]): string {
  return lines.map(([label, value]) => `  ${label.padEnd(11)} ${printable(value)}\n`).join('');
}
