/** An SDS client for tests, on any socket: it sends exactly what it is told, and nothing by itself. */
import { Client, type ClientDuplexStream, credentials, type ServiceError, status } from '@grpc/grpc-js';
import {
  type DeltaDiscoveryRequest,
  type DeltaDiscoveryResponse,
  type DiscoveryRequest,
  type DiscoveryResponse,
  deltaDiscoveryRequest,
  deltaDiscoveryResponse,
  discoveryRequest,
  discoveryResponse,
  type MessageCodec,
  SECRET_TYPE_URL,
  type SecretMessage,
  sdsMethod,
  secretMessage,
} from '../../src/rpc/index.js';

const NODE = { id: 'test-client' };

export interface TestStream<Request, Response> {
  /** Sends a request: with a node and the secret type URL unless they are given. */
  send(request: Partial<Request>): void;
  /** The next response; rejects with the status when the stream ends instead. */
  next(): Promise<Response>;
  /** Responses that have arrived and were not taken. */
  readonly waiting: readonly Response[];
  /** Resolves with the final status. */
  readonly ended: Promise<ServiceError | undefined>;
  cancel(): void;
  /** Says that no more requests come. */
  halfClose(): void;
}

export class SdsTestClient {
  readonly #client: Client;

  constructor(socket: string) {
    // Of its own connection, not one that grpc-js shares between clients of one address.
    this.#client = new Client(`unix:${socket}`, credentials.createInsecure(), {
      'grpc.use_local_subchannel_pool': 1,
      'grpc.default_authority': 'localhost',
    });
  }

  stream(): TestStream<DiscoveryRequest, DiscoveryResponse> {
    return this.#open(sdsMethod('StreamSecrets'), discoveryRequest, discoveryResponse);
  }

  delta(): TestStream<DeltaDiscoveryRequest, DeltaDiscoveryResponse> {
    return this.#open(sdsMethod('DeltaSecrets'), deltaDiscoveryRequest, deltaDiscoveryResponse);
  }

  fetch(request: Partial<DiscoveryRequest>): Promise<DiscoveryResponse> {
    return new Promise((resolve, reject) => {
      this.#client.makeUnaryRequest(
        sdsMethod('FetchSecrets'),
        discoveryRequest.encode,
        discoveryResponse.decode,
        { node: NODE, typeUrl: SECRET_TYPE_URL, ...request },
        (error, value) => (error ? reject(error) : value ? resolve(value) : reject(new Error('no answer'))),
      );
    });
  }

  /**
   * Resolves when the server has worked on everything that was sent before on this connection: whatever it had to say to
   * that has then arrived.
   */
  async fence(): Promise<void> {
    for (let round = 0; round < 2; round++) {
      await this.fetch({ resourceNames: ['no such name'] }).catch((error: ServiceError) => {
        if (error.code !== status.NOT_FOUND) throw error;
      });
    }
  }

  close(): void {
    this.#client.close();
  }

  /** Sends raw bytes as one message of a stream. */
  rawStream(path: string): ClientDuplexStream<Buffer, Buffer> {
    const same = (bytes: Buffer): Buffer => bytes;
    return this.#client.makeBidiStreamRequest(path, same, same);
  }

  #open<Request, Response>(
    path: string,
    request: MessageCodec<Request>,
    response: MessageCodec<Response>,
  ): TestStream<Request, Response> {
    const call = this.#client.makeBidiStreamRequest<Partial<Request>, Response>(path, request.encode, response.decode);
    const waiting: Response[] = [];
    const takers: { resolve: (value: Response) => void; reject: (error: unknown) => void }[] = [];
    call.on('data', (message: Response) => {
      const taker = takers.shift();
      if (taker) taker.resolve(message);
      else waiting.push(message);
    });
    const ended = new Promise<ServiceError | undefined>((resolve) => {
      call.on('error', (error: ServiceError) => resolve(error));
      call.on('status', (end) => {
        if (end.code === status.OK) resolve(undefined);
      });
    });
    void ended.then((error) => {
      for (const { reject } of takers) reject(error ?? new Error('the stream has ended'));
    });
    return {
      send: (message) => void call.write({ node: NODE, typeUrl: SECRET_TYPE_URL, ...message }),
      next: () => {
        const first = waiting.shift();
        return first ? Promise.resolve(first) : new Promise((resolve, reject) => takers.push({ resolve, reject }));
      },
      waiting,
      ended,
      cancel: () => call.cancel(),
      halfClose: () => call.end(),
    };
  }
}

/** The secrets in a response of either variant. */
export function secretsOf(response: DiscoveryResponse | DeltaDiscoveryResponse): SecretMessage[] {
  return response.resources.map((resource) => {
    const any = 'type_url' in resource ? resource : resource.resource;
    if (!any) throw new Error('a resource without a body');
    return secretMessage.decode(any.value);
  });
}

export function namesOf(response: DiscoveryResponse | DeltaDiscoveryResponse): string[] {
  return secretsOf(response).map(({ name }) => name);
}
