/**
 * Incremental: each request changes what the stream wants. Subscriptions apply whatever the nonce says, and each one is
 * answered, even if the client says that it has that version: it may have forgotten it.
 * https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol#incremental-xds
 */
import { type DeltaDiscoveryRequest, SECRET_TYPE_URL } from '../rpc/index.js';
import { redact } from './redact.js';
import { versionNumber } from './sotw.js';
import { Draft, faultOf, plainNames, type RequestHead, type Step, type StreamState, within } from './stream-state.js';

export function onDeltaRequest(state: StreamState, request: DeltaDiscoveryRequest): Step {
  const head: RequestHead = {
    nodeId: request.node?.id,
    typeUrl: request.typeUrl,
    responseNonce: request.responseNonce,
    error: request.errorDetail ? redact(request.errorDetail.message) : undefined,
  };
  const draft = new Draft(state);
  const fault = faultOf(state, head, SECRET_TYPE_URL);
  if (fault !== undefined) {
    draft.actions.push({ kind: 'refuse', reason: 'invalid', why: fault });
    return draft.step();
  }
  if (state.nodeId === undefined) draft.set({ nodeId: head.nodeId });
  else if (head.responseNonce !== '') draft.answer(head.responseNonce, head.error);

  for (const name of plainNames(draft, request.resourceNamesUnsubscribe)) draft.forget(name);
  for (const name of plainNames(draft, request.resourceNamesSubscribe)) {
    draft.demand(name);
    const held = request.initialResourceVersions[name];
    if (held !== undefined) draft.update(name, { holds: versionNumber(held) });
  }
  return within(state, draft);
}
