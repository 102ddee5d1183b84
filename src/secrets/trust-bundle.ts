/**
 * The trust anchors that clients are given, as a pure state machine. A root that the CA no longer stands for stays until the
 * last certificate under it has run out, here and on other hosts: they may have got one just before the change.
 * Times are milliseconds since the epoch.
 */
import type { Certificate } from '../pki/index.js';

export interface Anchor {
  readonly certificate: Certificate;
  /** The CA stands for it now. */
  readonly current: boolean;
  /** The latest end of any certificate that may have been granted under it. */
  readonly neededUntil: number;
}

export interface BundleState {
  /** By fingerprint. */
  readonly anchors: ReadonlyMap<string, Anchor>;
}

export type BundleEvent =
  /** The CA now stands for exactly these roots. `longestTtl`: the longest lifetime in use. */
  | {
      readonly kind: 'declared';
      readonly roots: readonly Certificate[];
      readonly now: number;
      readonly longestTtl: number;
    }
  /** A certificate from an earlier time, which ends at `notAfter`, is in use: its roots are needed, and may not be current. */
  | { readonly kind: 'restored'; readonly roots: readonly Certificate[]; readonly notAfter: number }
  /** A certificate that ends at `notAfter` was granted under these roots. */
  | { readonly kind: 'granted'; readonly roots: readonly Certificate[]; readonly notAfter: number }
  | { readonly kind: 'tick'; readonly now: number };

export const emptyBundle: BundleState = { anchors: new Map() };

/** The next state; the same object when nothing changed. */
export function changeBundle(state: BundleState, event: BundleEvent): BundleState {
  switch (event.kind) {
    case 'declared':
      return declare(state, event);
    case 'restored':
      return grant(known(state, event.roots), event.roots, event.notAfter);
    case 'granted':
      return grant(state, event.roots, event.notAfter);
    case 'tick':
      return keep(state, (anchor) => anchor.current || anchor.neededUntil > event.now);
  }
}

/** When the bundle next shrinks by itself, or undefined. */
export function nextShrink(state: BundleState): number | undefined {
  let next: number | undefined;
  for (const { current, neededUntil } of state.anchors.values()) {
    if (!current && (next === undefined || neededUntil < next)) next = neededUntil;
  }
  return next;
}

/** The roots in the order in which they are sent: sorted, so that the same set has the same bytes. */
export function bundleRoots(state: BundleState): readonly Certificate[] {
  return [...state.anchors.values()]
    .map(({ certificate }) => certificate)
    .sort((a, b) => (a.pem < b.pem ? -1 : a.pem > b.pem ? 1 : 0));
}

function declare(state: BundleState, event: Extract<BundleEvent, { kind: 'declared' }>): BundleState {
  // What is no CA verifies nobody, and Envoy would refuse every peer for it.
  const declared = new Map(event.roots.filter(({ isCa }) => isCa).map((root) => [root.fingerprint, root]));
  // A CA that declares nothing has said nothing: an empty bundle would turn verification off.
  if (declared.size === 0) return state;
  const anchors = new Map(state.anchors);
  let changed = false;
  for (const [fingerprint, anchor] of state.anchors) {
    if (anchor.current === declared.has(fingerprint)) continue;
    changed = true;
    const neededUntil = anchor.current
      ? Math.min(Math.max(anchor.neededUntil, event.now + event.longestTtl), anchor.certificate.notAfter)
      : anchor.neededUntil;
    anchors.set(fingerprint, { ...anchor, current: !anchor.current, neededUntil });
  }
  for (const [fingerprint, certificate] of declared) {
    if (anchors.has(fingerprint)) continue;
    changed = true;
    anchors.set(fingerprint, { certificate, current: true, neededUntil: event.now });
  }
  return changed ? { anchors } : state;
}

/** Takes in roots that are not known yet, without making them current. */
function known(state: BundleState, roots: readonly Certificate[]): BundleState {
  const missing = roots.filter(({ isCa, fingerprint }) => isCa && !state.anchors.has(fingerprint));
  if (missing.length === 0) return state;
  const added = missing.map((certificate): [string, Anchor] => [
    certificate.fingerprint,
    { certificate, current: false, neededUntil: 0 },
  ]);
  return { anchors: new Map([...state.anchors, ...added]) };
}

function grant(state: BundleState, roots: readonly Certificate[], notAfter: number): BundleState {
  let anchors: Map<string, Anchor> | undefined;
  for (const { fingerprint } of roots) {
    const anchor = state.anchors.get(fingerprint);
    if (!anchor || anchor.neededUntil >= notAfter) continue;
    anchors ??= new Map(state.anchors);
    anchors.set(fingerprint, { ...anchor, neededUntil: notAfter });
  }
  return anchors ? { anchors } : state;
}

function keep(state: BundleState, wanted: (anchor: Anchor) => boolean): BundleState {
  const kept = [...state.anchors].filter(([, anchor]) => wanted(anchor));
  return kept.length === state.anchors.size ? state : { anchors: new Map(kept) };
}
