import { Client, credentials } from '@grpc/grpc-js';
import { systemClock } from '../clock.js';
import { discoveryRequest, discoveryResponse, SECRET_TYPE_URL, sdsMethod } from './descriptors.js';

const DEADLINE_MS = 1_000;

/** What the SDS server on a socket calls itself; undefined if it does not say, or is no SDS server. */
export function controlPlaneIdentifier(socket: string, resourceName: string): Promise<string | undefined> {
  const client = new Client(`unix:${socket}`, credentials.createInsecure(), { 'grpc.default_authority': 'localhost' });
  return new Promise<string | undefined>((resolve) => {
    client.makeUnaryRequest(
      sdsMethod('FetchSecrets'),
      discoveryRequest.encode,
      discoveryResponse.decode,
      { node: { id: 'sdsd' }, typeUrl: SECRET_TYPE_URL, resourceNames: [resourceName] },
      { deadline: systemClock.now() + DEADLINE_MS },
      // An error is an answer too: such a server does not say who it is.
      (_error, response) => resolve(response?.controlPlane?.identifier || undefined),
    );
  }).finally(() => client.close());
}
