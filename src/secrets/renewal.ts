/**
 * The life of one identity's certificate, as a pure state machine: when the CA is asked, what is kept meanwhile, and when
 * nothing can be served any more. Times are milliseconds since the epoch. `workload-secret.ts` carries the actions out.
 *
 * Invariants:
 * - The current certificate is replaced by its successor, or withdrawn at its end, and by nothing else.
 * - At most one attempt is under way.
 * - Attempts start at least {@link MIN_INTERVAL_MS} apart, unless a person asks.
 * - Unless an attempt is under way, a wake-up is due: renewal is tried for ever.
 */

export const MIN_INTERVAL_MS = 1_000;
/** After n failures in a row the next attempt waits 1 s · 2^(n−1), at most this long, ±20 %. */
const MAX_BACKOFF_MS = 3_000;
const BACKOFF_SPREAD = 0.2;

export interface Lifetime {
  /** Receipt or notBefore, whichever is later: CAs backdate. */
  readonly from: number;
  /** The least notAfter of the chain. */
  readonly until: number;
  /** When the successor is asked for. */
  readonly renewAt: number;
}

export interface RenewalState {
  /** `initializing`: never had a certificate; `available`: has a valid one; `unavailable`: the last one has expired. */
  readonly kind: 'initializing' | 'available' | 'unavailable';
  readonly lifetime: Lifetime | undefined;
  readonly inFlight: boolean;
  /** Somebody asked for a rotation while an attempt was under way that began earlier. */
  readonly again: boolean;
  /** Attempts that failed since the last success. */
  readonly failures: number;
  readonly lastError: string | undefined;
  readonly askedAt: number;
  /** When the next attempt is due. */
  readonly nextAt: number;
}

export interface RenewalOptions {
  /** Fraction of the lifetime before its end at which to renew, 0 to 1. */
  readonly gracePeriodRatio: number;
  /** Added to or taken from the ratio, at random, at the most. */
  readonly gracePeriodRatioJitter: number;
}

/** `random` is uniform in [0, 1). */
export type RenewalEvent =
  | { readonly kind: 'start'; readonly now: number }
  | { readonly kind: 'wake'; readonly now: number }
  | { readonly kind: 'rotate'; readonly now: number }
  | {
      readonly kind: 'obtained';
      readonly now: number;
      /** When the CA was asked: an attempt may wait for others. */
      readonly askedAt: number;
      readonly notBefore: number;
      readonly notAfter: number;
      readonly random: number;
    }
  /** A certificate from before a restart, obtained at `obtainedAt`, which is still valid. */
  | {
      readonly kind: 'restored';
      readonly now: number;
      readonly obtainedAt: number;
      readonly notBefore: number;
      readonly notAfter: number;
      readonly random: number;
    }
  | {
      readonly kind: 'failed';
      readonly now: number;
      readonly askedAt: number;
      readonly why: string;
      readonly random: number;
    };

export type RenewalAction =
  /** Ask the CA. */
  | { readonly kind: 'obtain' }
  /** Send a `wake` event at this time; replaces the wake-up asked for before. */
  | { readonly kind: 'wake-at'; readonly time: number }
  /** What was obtained is now current. */
  | { readonly kind: 'publish' }
  /** The current certificate has expired. */
  | { readonly kind: 'withdraw' }
  | { readonly kind: 'report'; readonly change: 'failing' | 'recovered' | 'expired' };

export interface RenewalStep {
  readonly state: RenewalState;
  readonly actions: readonly RenewalAction[];
}

export const initialRenewal: RenewalState = {
  kind: 'initializing',
  lifetime: undefined,
  inFlight: false,
  again: false,
  failures: 0,
  lastError: undefined,
  askedAt: Number.NEGATIVE_INFINITY,
  nextAt: Number.NEGATIVE_INFINITY,
};

export function renew(state: RenewalState, event: RenewalEvent, options: RenewalOptions): RenewalStep {
  switch (event.kind) {
    case 'start':
      return attempt(state, event.now, []);
    case 'rotate':
      return state.inFlight ? { state: { ...state, again: true }, actions: [] } : attempt(state, event.now, []);
    case 'wake':
      return wake(state, event.now);
    case 'obtained':
      return obtained(state, event, options);
    case 'restored':
      return restored(state, event, options);
    case 'failed':
      return failed(state, event);
  }
}

function attempt(state: RenewalState, now: number, before: readonly RenewalAction[]): RenewalStep {
  const next = { ...state, inFlight: true, again: false, askedAt: now };
  return { state: next, actions: [...before, { kind: 'obtain' }, ...expiryWake(next)] };
}

function wake(state: RenewalState, now: number): RenewalStep {
  const [current, actions] = expire(state, now);
  if (current.inFlight) return { state: current, actions: [...actions, ...expiryWake(current)] };
  if (now >= current.nextAt) return attempt(current, now, actions);
  return { state: current, actions: [...actions, wakeAt(current)] };
}

function obtained(
  state: RenewalState,
  event: Extract<RenewalEvent, { kind: 'obtained' }>,
  options: RenewalOptions,
): RenewalStep {
  const { now, notBefore, notAfter } = event;
  const from = Math.max(now, notBefore);
  if (!(notAfter > now)) {
    const why = 'the CA issued a certificate that has already expired';
    return failed(state, { kind: 'failed', now, askedAt: event.askedAt, why, random: event.random });
  }
  const renewAt = now + rotateDelay({ from, until: notAfter, now, random: event.random, ...options });
  const next: RenewalState = {
    ...state,
    kind: 'available',
    lifetime: { from, until: notAfter, renewAt },
    inFlight: false,
    failures: 0,
    lastError: undefined,
    askedAt: event.askedAt,
    nextAt: Math.max(renewAt, event.askedAt + MIN_INTERVAL_MS),
  };
  const actions: RenewalAction[] = [{ kind: 'publish' }];
  if (state.failures > 0) actions.push({ kind: 'report', change: 'recovered' });
  return state.again ? attempt(next, now, actions) : { state: next, actions: [...actions, wakeAt(next)] };
}

/** Its renewal is due when it was before the restart, or at once. */
function restored(
  state: RenewalState,
  event: Extract<RenewalEvent, { kind: 'restored' }>,
  options: RenewalOptions,
): RenewalStep {
  const { now, notAfter } = event;
  const from = Math.max(Math.min(event.obtainedAt, now), event.notBefore);
  const renewAt = now + rotateDelay({ from, until: notAfter, now, random: event.random, ...options });
  const next: RenewalState = {
    ...state,
    kind: 'available',
    lifetime: { from, until: notAfter, renewAt },
    nextAt: renewAt,
  };
  return { state: next, actions: [{ kind: 'publish' }, wakeAt(next)] };
}

function failed(state: RenewalState, event: Extract<RenewalEvent, { kind: 'failed' }>): RenewalStep {
  const [current, actions] = expire(state, event.now);
  const failures = current.failures + 1;
  const backoff = Math.min(MIN_INTERVAL_MS * 2 ** (failures - 1), MAX_BACKOFF_MS);
  const spread = 1 + BACKOFF_SPREAD * (2 * event.random - 1);
  const next: RenewalState = {
    ...current,
    inFlight: false,
    failures,
    lastError: event.why,
    askedAt: event.askedAt,
    nextAt: Math.max(event.now + backoff * spread, event.askedAt + MIN_INTERVAL_MS),
  };
  const report: RenewalAction[] = failures === 1 ? [{ kind: 'report', change: 'failing' }] : [];
  // A rotation that a person asked for meanwhile has had its answer: this failure. It is retried like any other.
  const settled = { ...next, again: false };
  return { state: settled, actions: [...actions, ...report, wakeAt(settled)] };
}

function expire(state: RenewalState, now: number): [RenewalState, RenewalAction[]] {
  if (state.kind !== 'available' || !state.lifetime || now < state.lifetime.until) return [state, []];
  return [{ ...state, kind: 'unavailable' }, [{ kind: 'withdraw' }, { kind: 'report', change: 'expired' }]];
}

function wakeAt(state: RenewalState): RenewalAction {
  const until = state.kind === 'available' && state.lifetime ? state.lifetime.until : Number.POSITIVE_INFINITY;
  return { kind: 'wake-at', time: Math.min(state.nextAt, until) };
}

/** While an attempt is under way only the end of the current certificate is waited for. */
function expiryWake(state: RenewalState): RenewalAction[] {
  return state.kind === 'available' && state.lifetime ? [{ kind: 'wake-at', time: state.lifetime.until }] : [];
}

export interface RotateDelayInput extends RenewalOptions {
  readonly from: number;
  readonly until: number;
  readonly now: number;
  /** Uniform in [0, 1). */
  readonly random: number;
}

/** Milliseconds from `now` until the successor of a certificate is asked for; never negative. */
export function rotateDelay(input: RotateDelayInput): number {
  const jitter = input.gracePeriodRatioJitter * (2 * input.random - 1);
  const ratio = Math.min(1, Math.max(0, input.gracePeriodRatio + jitter));
  return Math.max(0, input.until - ratio * (input.until - input.from) - input.now);
}
