/** Keeps the trust anchors over a restart, so that an overlap of two roots is not cut short by one. */
import { readFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { errnoOf, messageOf, SdsdError } from '../errors.js';
import { parseCertificates } from '../pki/index.js';
import { makeDirectories, writeFileAtomic } from '../storage/index.js';
import type { Anchor, BundleState } from './trust-bundle.js';

const FORMAT = 1;

/** What is kept of the trust bundle. */
export interface StoredBundle extends BundleState {
  /** No version that was given when this was written, or soon after, is greater; 0 before the first. */
  readonly version: number;
}

export interface TrustBundleStore {
  /** An empty bundle if none was stored. Rejects with ERR_SDSD_STATE if one was, and cannot be read. */
  load(): Promise<StoredBundle>;
  /** Rejects with ERR_SDSD_STATE; what was stored before is then still there. */
  save(bundle: StoredBundle): Promise<void>;
}

/** A JSON file with the roots in PEM: nothing in it is secret. */
export function trustBundleFile(path: string): TrustBundleStore {
  return {
    async load() {
      let text: string;
      try {
        text = await readFile(path, 'utf8');
      } catch (error) {
        if (errnoOf(error) === 'ENOENT') return { version: 0, anchors: new Map() };
        throw broken(path, error);
      }
      try {
        return parse(JSON.parse(text));
      } catch (error) {
        throw broken(path, error);
      }
    },
    async save(bundle) {
      const anchors = [...bundle.anchors.values()].map(({ certificate, current, neededUntil }) => ({
        pem: certificate.pem,
        current,
        neededUntil: new Date(neededUntil).toISOString(),
      }));
      try {
        // Somebody may have deleted it under the daemon.
        makeDirectories(dirname(path), 0o700);
        await writeFileAtomic(
          path,
          `${JSON.stringify({ format: FORMAT, version: bundle.version, anchors }, null, 2)}\n`,
          0o600,
        );
      } catch (error) {
        throw new SdsdError('ERR_SDSD_STATE', `cannot store the trust anchors in ${path}: ${messageOf(error)}`, {
          hint: 'make room, or let this user write there; until then a restart may end the overlap of two roots early',
          cause: error,
        });
      }
    },
  };
}

function broken(path: string, error: unknown): SdsdError {
  return new SdsdError('ERR_SDSD_STATE', `cannot read the trust anchors in ${path}: ${messageOf(error)}`, {
    hint: 'repair the file, or remove it: then only the roots that the CA stands for now are trusted',
    cause: error,
  });
}

function parse(value: unknown): StoredBundle {
  if (!isRecord(value) || value['format'] !== FORMAT || !Array.isArray(value['anchors'])) {
    throw new Error(`it is not a trust bundle of format ${FORMAT}`);
  }
  const version = value['version'];
  const anchors = value['anchors'].map(parseAnchor);
  return {
    version: typeof version === 'number' && Number.isSafeInteger(version) ? version : 0,
    anchors: new Map(anchors.map((anchor) => [anchor.certificate.fingerprint, anchor])),
  };
}

function parseAnchor(value: unknown): Anchor {
  if (!isRecord(value) || typeof value['pem'] !== 'string' || typeof value['neededUntil'] !== 'string') {
    throw new Error('an anchor has no PEM or no end');
  }
  const [certificate] = parseCertificates(Buffer.from(value['pem']));
  const neededUntil = Date.parse(value['neededUntil']);
  if (!certificate || Number.isNaN(neededUntil)) throw new Error('an anchor has no certificate or a broken end');
  return { certificate, current: value['current'] === true, neededUntil };
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null;
}
