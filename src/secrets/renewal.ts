/**
 * The life of one identity's certificate, as a pure state machine: when the CA is asked, what is kept meanwhile, and when
 * nothing can be served any more. Times are milliseconds since the epoch. `workload-secret.ts` carries the actions out.
 *
 * Invariants:
 * - The current certificate is replaced by its successor, or withdrawn while the present time is not within its validity (it
 *   has expired, or the clock was set back), and by nothing else.
 * - At most one attempt is under way.
 * - Attempts start at least {@link MIN_INTERVAL_MS} apart, unless a person asks.
 * - Unless an attempt is under way, a wake-up is due: renewal is tried for ever.
 */

export const MIN_INTERVAL_MS = 1_000;
/**
 * After n failures in a row the next attempt waits 1 s · 2^(n−1), ±20 %: at most a twentieth of what the current certificate has
 * left, within these bounds. Without a valid one, or near its end, that is a few seconds.
 */
const LEAST_MAX_BACKOFF_MS = 3_000;
const MOST_MAX_BACKOFF_MS = 300_000;
const BACKOFF_SHARE = 0.05;
const BACKOFF_SPREAD = 0.2;

export interface Lifetime {
  /** When all of the chain and its root have begun to be valid. */
  readonly validFrom: number;
  /** Receipt or notBefore, whichever is later: CAs backdate. */
  readonly from: number;
  /** The least notAfter of the chain and its root. */
  readonly until: number;
  /** When the successor is asked for. */
  readonly renewAt: number;
}

export interface RenewalState {
  /** `initializing`: never had a certificate; `available`: has a valid one; `unavailable`: the last one is not valid now. */
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
  /** The CA answers again, or its root has changed: what failed or is outdated need not wait. */
  | { readonly kind: 'hurry'; readonly now: number; readonly within: number; readonly random: number }
  | {
      readonly kind: 'obtained';
      readonly now: number;
      /** When the CA was asked: an attempt may wait for others. */
      readonly askedAt: number;
      /** Of the chain and its root: the latest begin and the first end. */
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
  /** The current certificate is not valid any more, or not yet; or, after the clock was set right, valid again. */
  | { readonly kind: 'withdraw' }
  | { readonly kind: 'restore' }
  | { readonly kind: 'report'; readonly change: RenewalChange };

export type RenewalChange = 'failing' | 'recovered' | 'expired' | 'not-yet-valid';

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
    case 'hurry':
      return hurry(state, event);
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

/** Brings the next attempt forward to some moment within `within` milliseconds. */
function hurry(state: RenewalState, event: Extract<RenewalEvent, { kind: 'hurry' }>): RenewalStep {
  const earliest = soonest(state, event.now);
  const next = { ...state, nextAt: Math.min(state.nextAt, earliest + event.within * event.random) };
  return wake(next, event.now);
}

/** When the CA may be asked again. By a clock that was set back it was asked last in the future, which says nothing. */
function soonest({ askedAt }: RenewalState, now: number): number {
  return askedAt > now ? now : Math.max(now, askedAt + MIN_INTERVAL_MS);
}

function wake(state: RenewalState, now: number): RenewalStep {
  const [current, actions] = weigh(state, now);
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
    lifetime: { validFrom: notBefore, from, until: notAfter, renewAt },
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
    lifetime: { validFrom: event.notBefore, from, until: notAfter, renewAt },
    nextAt: renewAt,
  };
  return { state: next, actions: [{ kind: 'publish' }, wakeAt(next)] };
}

function failed(state: RenewalState, event: Extract<RenewalEvent, { kind: 'failed' }>): RenewalStep {
  const [current, actions] = weigh(state, event.now);
  const failures = current.failures + 1;
  const backoff = Math.min(MIN_INTERVAL_MS * 2 ** (failures - 1), maxBackoff(current, event.now));
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

function maxBackoff({ kind, lifetime }: RenewalState, now: number): number {
  const left = kind === 'available' && lifetime ? lifetime.until - now : 0;
  return Math.min(Math.max(left * BACKOFF_SHARE, LEAST_MAX_BACKOFF_MS), MOST_MAX_BACKOFF_MS);
}

/** Whether the present time is within what a certificate needs to verify. */
export function isValidAt({ validFrom, until }: Pick<Lifetime, 'validFrom' | 'until'>, now: number): boolean {
  return now >= validFrom && now < until;
}

/** Takes notice of the time: a certificate stops to be valid at its end, and also when the clock is set back before its begin. */
function weigh(state: RenewalState, now: number): [RenewalState, RenewalAction[]] {
  if (state.kind === 'initializing' || !state.lifetime) return [state, []];
  const isValid = isValidAt(state.lifetime, now);
  if (isValid === (state.kind === 'available')) return [state, []];
  if (isValid) return [{ ...state, kind: 'available' }, [{ kind: 'restore' }]];
  const change = now < state.lifetime.validFrom ? 'not-yet-valid' : 'expired';
  // There is no time to lose, whatever was planned before.
  const nextAt = Math.min(state.nextAt, soonest(state, now));
  return [{ ...state, kind: 'unavailable', nextAt }, [{ kind: 'withdraw' }, { kind: 'report', change }]];
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
