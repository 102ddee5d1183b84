/**
 * The wire types, loaded from `proto/`. Messages are plain objects in camelCase; `bytes` are Buffers. A message that is
 * encoded in parts is whole again when the parts are joined: that is how protobuf defines concatenation.
 */
import { fileURLToPath } from 'node:url';
import { loadSync, type MessageTypeDefinition } from '@grpc/proto-loader';

/** The type URL of every SDS resource. */
export const SECRET_TYPE_URL = 'type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret';

export const SDS_SERVICE = 'envoy.service.secret.v3.SecretDiscoveryService';

export interface Node {
  readonly id: string;
  readonly cluster?: string;
  readonly userAgentName?: string;
}

export interface RpcStatus {
  readonly code: number;
  readonly message: string;
}

/** protobufjs ships this type itself and spells its field as the .proto does. */
export interface Any {
  readonly type_url: string;
  readonly value: Buffer;
}

export interface ControlPlane {
  readonly identifier: string;
}

export interface DiscoveryRequest {
  readonly versionInfo: string;
  readonly node: Node | null;
  readonly resourceNames: readonly string[];
  readonly typeUrl: string;
  readonly responseNonce: string;
  readonly errorDetail: RpcStatus | null;
}

export interface DiscoveryResponse {
  readonly versionInfo: string;
  readonly resources: readonly Any[];
  readonly typeUrl: string;
  readonly nonce: string;
  readonly controlPlane: ControlPlane | null;
}

export interface DeltaDiscoveryRequest {
  readonly node: Node | null;
  readonly typeUrl: string;
  readonly resourceNamesSubscribe: readonly string[];
  readonly resourceNamesUnsubscribe: readonly string[];
  readonly initialResourceVersions: Readonly<Record<string, string>>;
  readonly responseNonce: string;
  readonly errorDetail: RpcStatus | null;
}

export interface Resource {
  readonly version: string;
  readonly resource: Any | null;
  readonly name: string;
}

export interface DeltaDiscoveryResponse {
  readonly systemVersionInfo: string;
  readonly resources: readonly Resource[];
  readonly removedResources: readonly string[];
  readonly typeUrl: string;
  readonly nonce: string;
  readonly controlPlane: ControlPlane | null;
}

export interface DataSource {
  readonly filename?: string;
  readonly inlineBytes?: Buffer;
  readonly inlineString?: string;
}

export interface SecretMessage {
  readonly name: string;
  readonly tlsCertificate?: { readonly certificateChain: DataSource | null; readonly privateKey: DataSource | null };
  readonly validationContext?: { readonly trustedCa: DataSource | null };
}

/** Encodes a message, or a part of one: fields left out are not written. */
export type Encode<T> = (message: Partial<T>) => Buffer;
/** Decodes a whole message; scalar fields that are absent get protobuf's default. Throws on malformed input. */
export type Decode<T> = (bytes: Buffer) => T;

export interface MessageCodec<T> {
  readonly encode: Encode<T>;
  readonly decode: Decode<T>;
}

const definitions = loadSync(
  ['envoy/service/secret/v3/sds.proto', 'envoy/extensions/transport_sockets/tls/v3/secret.proto'],
  {
    includeDirs: [fileURLToPath(new URL('../../proto/', import.meta.url))],
    longs: String,
    enums: String,
    defaults: true,
    oneofs: true,
  },
);

function codec<T extends object>(name: string): MessageCodec<T> {
  const definition = definitions[name];
  if (!definition || !('serialize' in definition)) throw new Error(`proto/ defines no message ${name}`);
  const message = definition as unknown as MessageTypeDefinition<Partial<T>, T>;
  return { encode: message.serialize, decode: message.deserialize };
}

export const discoveryRequest = codec<DiscoveryRequest>('envoy.service.discovery.v3.DiscoveryRequest');
export const discoveryResponse = codec<DiscoveryResponse>('envoy.service.discovery.v3.DiscoveryResponse');
export const deltaDiscoveryRequest = codec<DeltaDiscoveryRequest>('envoy.service.discovery.v3.DeltaDiscoveryRequest');
export const deltaDiscoveryResponse = codec<DeltaDiscoveryResponse>(
  'envoy.service.discovery.v3.DeltaDiscoveryResponse',
);
export const secretMessage = codec<SecretMessage>('envoy.extensions.transport_sockets.tls.v3.Secret');

/** The full method path of an SDS method, as it stands in `:path`. */
export function sdsMethod(name: 'StreamSecrets' | 'DeltaSecrets' | 'FetchSecrets'): string {
  return `/${SDS_SERVICE}/${name}`;
}
