/**
 * Secrets as bytes on the wire. Each secret is encoded once, however many streams it goes to: a response is put together
 * from encoded parts, which protobuf allows, and the usual response (one secret, pushed for the first time) is kept whole.
 */
import {
  type DeltaDiscoveryResponse,
  type DiscoveryResponse,
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

interface Parts {
  /** `resources` of a response in each variant. */
  readonly sotw: Buffer;
  readonly delta: Buffer;
  /** The whole response whose version and nonce are the secret's version. */
  whole: { sotw?: Buffer; delta?: Buffer };
}

export class SecretEncoder {
  readonly #parts = new WeakMap<Secret, Parts>();

  /** One response of these secrets and removals. `nonce` is also the version of the whole. */
  response(variant: 'sotw' | 'delta', secrets: readonly Secret[], removed: readonly string[], nonce: string): Buffer {
    const [only] = secrets;
    if (only && secrets.length === 1 && removed.length === 0 && nonce === String(only.version)) {
      const { whole } = this.#of(only);
      whole[variant] ??= this.#assemble(variant, secrets, removed, nonce);
      return whole[variant];
    }
    return this.#assemble(variant, secrets, removed, nonce);
  }

  #assemble(variant: 'sotw' | 'delta', secrets: readonly Secret[], removed: readonly string[], nonce: string): Buffer {
    const resources = secrets.map((secret) => this.#of(secret)[variant]);
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

  #of(secret: Secret): Parts {
    let parts = this.#parts.get(secret);
    if (!parts) {
      const resource = { type_url: SECRET_TYPE_URL, value: secretMessage.encode(toMessage(secret)) };
      const sotw: Partial<DiscoveryResponse> = { resources: [resource] };
      const delta: Partial<DeltaDiscoveryResponse> = {
        resources: [{ name: secret.name, version: String(secret.version), resource }],
      };
      parts = { sotw: discoveryResponse.encode(sotw), delta: deltaDiscoveryResponse.encode(delta), whole: {} };
      this.#parts.set(secret, parts);
    }
    return parts;
  }
}

function toMessage(secret: Secret): SecretMessage {
  switch (secret.kind) {
    case 'tls-certificate':
      return {
        name: secret.name,
        tlsCertificate: {
          certificateChain: { inlineBytes: secret.certificateChain },
          privateKey: { inlineBytes: secret.privateKey },
        },
      };
    case 'validation-context':
      return { name: secret.name, validationContext: { trustedCa: { inlineBytes: secret.trustedCa } } };
  }
}
