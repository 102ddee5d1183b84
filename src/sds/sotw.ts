/**
 * State of the world: each request names everything that the stream wants.
 * https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol#ack-nack-and-resource-type-instance-version
 */
import type { DiscoveryRequest } from '../rpc/index.js';
import { redact } from './redact.js';
import { begin, Draft, plainNames, type Step, type StreamState, within } from './stream-state.js';

export function onDiscoveryRequest(state: StreamState, request: DiscoveryRequest): Step {
  const draft = begin(state, request);
  if (!(draft instanceof Draft)) return draft;
  const error = request.errorDetail ? redact(request.errorDetail.message) : undefined;
  const names = plainNames(draft, request.resourceNames);
  if (state.nodeId === undefined) {
    // Nonce and error belong to an earlier stream; the version tells what the client still holds of it.
    demandAll(draft, names, versionNumber(request.versionInfo));
    return within(state, draft);
  }
  if (request.responseNonce !== '') draft.answer(request.responseNonce, error);
  if (names.size === 0) {
    for (const name of state.watches.keys()) draft.forget(name);
  } else if (state.watches.size === 0) {
    demandAll(draft, names, undefined);
  } else if (request.responseNonce === '') {
    restate(draft, names, error === undefined);
    if (error !== undefined) rejectAll(draft, error);
  } else if (request.responseNonce === state.nonce) {
    restate(draft, names, false);
  }
  // Any other nonce answers a response that a later one has overtaken: its names are out of date.
  return within(state, draft);
}

function demandAll(draft: Draft, names: Iterable<string>, holds: number | undefined): void {
  for (const name of names) {
    draft.demand(name);
    if (holds !== undefined) draft.update(name, { holds });
  }
}

/** Replaces the names: gone ones are forgotten, new ones answered, and those that stay only if `again`. */
function restate(draft: Draft, names: ReadonlySet<string>, again: boolean): void {
  for (const name of [...draft.state.watches.keys()]) if (!names.has(name)) draft.forget(name);
  for (const name of names) if (again || !draft.watch(name)) draft.demand(name);
}

/** A NACK that names no response is about whatever this stream was sent. */
function rejectAll(draft: Draft, error: string): void {
  const names: string[] = [];
  for (const [name, { sent }] of draft.state.watches) {
    if (typeof sent !== 'number') continue;
    draft.update(name, { rejected: { version: sent, error } });
    names.push(name);
  }
  draft.actions.push({ kind: 'rejected', names, error });
}

/** The number in one of our own versions, or undefined for another server's. */
export function versionNumber(version: string): number | undefined {
  const match = /^(\d{1,16})(?:\.\d+)?$/.exec(version);
  return match ? Number(match[1]) : undefined;
}
