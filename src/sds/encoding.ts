/**
 * Secrets as bytes on the wire. Each secret is encoded once, however many streams it goes to: a response is put together
 * from encoded parts, which protobuf allows, and the usual response (one secret, pushed for the first time) is kept whole.
 */
import {
  type DataSource,
  deltaDiscoveryResponse,
  discoveryResponse,
  SECRET_TYPE_URL,
  type SecretMessage,
  secretMessage,
} from '../rpc/index.js';
import type { Secret } from '../secrets/index.js';

/** What SDS says of the server that answers; another sdsd on the socket is recognised by it. */
export const CONTROL_PLANE_IDENTIFIER = 'sdsd';

const controlPlane = { identifier: CONTROL_PLANE_IDENTIFIER };

/** `resources` of a response in each variant. */
interface Parts {
  readonly sotw: Buffer;
  readonly delta: Buffer;
}

/** The whole response whose version and nonce are the secret's version, made when it is first sent. */
interface Whole {
  sotw?: Buffer;
  delta?: Buffer;
}

/** A secret to send, with that many newlines added to its PEM. */
export interface PaddedSecret {
  readonly secret: Secret;
  readonly padding: number;
}

export class SecretEncoder {
  readonly #parts = new WeakMap<Secret, Parts & { readonly whole: Whole }>();

  /** One response of these secrets and removals. `nonce` is also the version of the whole. */
  response(
    variant: 'sotw' | 'delta',
    secrets: readonly PaddedSecret[],
    removed: readonly string[],
    nonce: string,
  ): Buffer {
    const [only] = secrets;
    if (only?.padding !== 0 || secrets.length > 1 || removed.length > 0 || nonce !== String(only.secret.version)) {
      return this.#assemble(variant, secrets, removed, nonce);
    }
    const { whole } = this.#of(only.secret);
    whole[variant] ??= this.#assemble(variant, secrets, removed, nonce);
    return whole[variant];
  }

  #assemble(
    variant: 'sotw' | 'delta',
    secrets: readonly PaddedSecret[],
    removed: readonly string[],
    nonce: string,
  ): Buffer {
    const resources = secrets.map(({ secret, padding }) =>
      padding === 0 ? this.#of(secret)[variant] : encodeParts(secret, padding)[variant],
    );
    const head =
      variant === 'sotw'
        ? discoveryResponse.encode({ versionInfo: nonce, typeUrl: SECRET_TYPE_URL, nonce, controlPlane })
        : deltaDiscoveryResponse.encode({
            systemVersionInfo: nonce,
            typeUrl: SECRET_TYPE_URL,
            nonce,
            removedResources: removed,
            controlPlane,
          });
    return Buffer.concat([...resources, head]);
  }

  #of(secret: Secret): Parts & { readonly whole: Whole } {
    let parts = this.#parts.get(secret);
    if (!parts) {
      parts = { ...encodeParts(secret, 0), whole: {} };
      this.#parts.set(secret, parts);
    }
    return parts;
  }
}

function encodeParts(secret: Secret, padding: number): Parts {
  const resource = { type_url: SECRET_TYPE_URL, value: secretMessage.encode(toMessage(secret, padding)) };
  const version = padding === 0 ? String(secret.version) : `${secret.version}.${padding}`;
  return {
    sotw: discoveryResponse.encode({ resources: [resource] }),
    delta: deltaDiscoveryResponse.encode({ resources: [{ name: secret.name, version, resource }] }),
  };
}

function toMessage(secret: Secret, padding: number): SecretMessage {
  const padded = (pem: Buffer): DataSource => ({
    inlineBytes: padding === 0 ? pem : Buffer.concat([pem, Buffer.alloc(padding, '\n')]),
  });
  switch (secret.kind) {
    case 'tls-certificate':
      return {
        name: secret.name,
        tlsCertificate: {
          certificateChain: padded(secret.certificateChain),
          privateKey: { inlineBytes: secret.privateKey },
        },
      };
    case 'validation-context':
      return { name: secret.name, validationContext: { trustedCa: padded(secret.trustedCa) } };
  }
}
