import { join } from 'node:path';
import type { TestContext } from 'node:test';
import {
  Server,
  ServerCredentials,
  type ServerDuplexStream,
  type ServerUnaryCall,
  type sendUnaryData,
} from '@grpc/grpc-js';
import {
  type DeltaDiscoveryRequest,
  type DiscoveryRequest,
  deltaDiscoveryRequest,
  discoveryRequest,
  sdsMethod,
} from '../../../src/rpc/descriptors.js';
import { workDirectory } from './fake-io.js';

export interface FakeSds {
  /** Called with each request of a stream, counted from 0. */
  readonly stream?: (
    request: DiscoveryRequest,
    call: ServerDuplexStream<DiscoveryRequest, Buffer>,
    index: number,
  ) => void;
  readonly delta?: (
    request: DeltaDiscoveryRequest,
    call: ServerDuplexStream<DeltaDiscoveryRequest, Buffer>,
    index: number,
  ) => void;
  readonly fetch?: (request: DiscoveryRequest, reply: sendUnaryData<Buffer>) => void;
}

/** An SDS server that does what the test says, whatever the protocol says. Resolves with its socket. */
export async function fakeSdsServer(t: TestContext, handlers: FakeSds): Promise<string> {
  const bytes = (message: Buffer): Buffer => message;
  const base = { responseStream: true, requestStream: true, responseSerialize: bytes, responseDeserialize: bytes };
  const sotw = { requestSerialize: discoveryRequest.encode, requestDeserialize: discoveryRequest.decode };
  const server = new Server();
  server.addService(
    {
      StreamSecrets: { ...base, ...sotw, path: sdsMethod('StreamSecrets') },
      FetchSecrets: { ...base, ...sotw, requestStream: false, responseStream: false, path: sdsMethod('FetchSecrets') },
      DeltaSecrets: {
        ...base,
        requestSerialize: deltaDiscoveryRequest.encode,
        requestDeserialize: deltaDiscoveryRequest.decode,
        path: sdsMethod('DeltaSecrets'),
      },
    },
    {
      StreamSecrets: (call: ServerDuplexStream<DiscoveryRequest, Buffer>) => {
        let index = 0;
        call.on('data', (request: DiscoveryRequest) => handlers.stream?.(request, call, index++));
        call.on('end', () => call.end());
      },
      DeltaSecrets: (call: ServerDuplexStream<DeltaDiscoveryRequest, Buffer>) => {
        let index = 0;
        call.on('data', (request: DeltaDiscoveryRequest) => handlers.delta?.(request, call, index++));
        call.on('end', () => call.end());
      },
      FetchSecrets: (call: ServerUnaryCall<DiscoveryRequest, Buffer>, reply: sendUnaryData<Buffer>) =>
        handlers.fetch?.(call.request, reply),
    },
  );
  const socket = join(workDirectory(t), 's');
  await new Promise<void>((resolve, reject) =>
    server.bindAsync(`unix:${socket}`, ServerCredentials.createInsecure(), (error) =>
      error ? reject(error) : resolve(),
    ),
  );
  t.after(() => server.forceShutdown());
  return socket;
}
