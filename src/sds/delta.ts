/**
 * Incremental: each request changes what the stream wants. Subscriptions apply whatever the nonce says, and each one is
 * answered, even if the client says that it has that version: it may have forgotten it.
 * https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol#incremental-xds
 */
import type { DeltaDiscoveryRequest } from '../rpc/index.js';
import { redact } from './redact.js';
import { versionNumber } from './sotw.js';
import { begin, Draft, plainNames, type Step, type StreamState, within } from './stream-state.js';

export function onDeltaRequest(state: StreamState, request: DeltaDiscoveryRequest): Step {
  const draft = begin(state, request);
  if (!(draft instanceof Draft)) return draft;
  const error = request.errorDetail ? redact(request.errorDetail.message) : undefined;
  // The nonce of a first request belongs to an earlier stream.
  if (state.nodeId !== undefined && request.responseNonce !== '') draft.answer(request.responseNonce, error);

  for (const name of request.resourceNamesUnsubscribe) draft.forget(name);
  for (const name of plainNames(draft, request.resourceNamesSubscribe)) {
    draft.demand(name);
    const held = request.initialResourceVersions[name];
    if (held !== undefined) draft.update(name, { holds: versionNumber(held) });
  }
  return within(state, draft);
}
