import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  initialRenewal,
  MIN_INTERVAL_MS,
  type RenewalAction,
  type RenewalEvent,
  type RenewalState,
  renew,
  rotateDelay,
} from '../../../src/secrets/renewal.js';

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const OPTIONS = { gracePeriodRatio: 0.5, gracePeriodRatioJitter: 0 };

describe('rotateDelay', () => {
  const table: readonly [name: string, ratio: number, from: number, until: number, minutes: number][] = [
    ['is 0 for what has expired', 0.5, -2 * HOUR, -HOUR, 0],
    ['is half the lifetime at ratio 0.5', 0.5, 0, HOUR, 30],
    ['is three quarters at ratio 0.25', 0.25, 0, HOUR, 45],
    ['is a quarter at ratio 0.75', 0.75, 0, HOUR, 15],
    ['is 0 at ratio 1', 1, 0, HOUR, 0],
    ['is the whole lifetime at ratio 0', 0, 0, HOUR, 60],
    ['counts from notBefore when that is ahead', 0.25, 30 * MINUTE, 90 * MINUTE, 75],
  ];
  for (const [name, gracePeriodRatio, from, until, minutes] of table) {
    it(`${name} (SM-03)`, () => {
      const delay = rotateDelay({ gracePeriodRatio, gracePeriodRatioJitter: 0, from, until, now: 0, random: 0.5 });
      assert.equal(delay, minutes * MINUTE);
    });
  }

  const bounds: readonly [ratio: number, least: number, most: number][] = [
    [1, 0, 30],
    [0.5, 0, 60],
    [0, 30, 60],
  ];
  for (const [gracePeriodRatio, least, most] of bounds) {
    it(`stays within ${least} to ${most} minutes at ratio ${gracePeriodRatio} with jitter 0.5, and fills that range (SM-04)`, () => {
      const delays = Array.from({ length: 1_001 }, (_, i) =>
        rotateDelay({ gracePeriodRatio, gracePeriodRatioJitter: 0.5, from: 0, until: HOUR, now: 0, random: i / 1_000 }),
      );
      assert.equal(Math.min(...delays), least * MINUTE);
      assert.equal(Math.max(...delays), most * MINUTE);
    });
  }

  it('spreads a thousand identical certificates over a tenth of their lifetime, none past its end (R5)', () => {
    const delays = Array.from({ length: 1_000 }, () =>
      rotateDelay({
        gracePeriodRatio: 0.5,
        gracePeriodRatioJitter: 0.05,
        from: 0,
        until: HOUR,
        now: 0,
        random: Math.random(),
      }),
    );
    assert.ok(Math.max(...delays) < HOUR);
    assert.ok(Math.max(...delays) - Math.min(...delays) > HOUR * 0.09);
    const buckets = new Map<number, number>();
    for (const delay of delays) {
      const bucket = Math.floor(delay / (HOUR / 1_000));
      buckets.set(bucket, (buckets.get(bucket) ?? 0) + 1);
    }
    assert.ok(Math.max(...buckets.values()) <= 50, 'no thousandth of the lifetime holds more than 5 %');
  });
});

/** Feeds events in order; returns the last state and all actions of the last event. */
function play(
  events: readonly RenewalEvent[],
  start: RenewalState = initialRenewal,
): [RenewalState, readonly RenewalAction[]] {
  let state = start;
  let actions: readonly RenewalAction[] = [];
  for (const event of events) ({ state, actions } = renew(state, event, OPTIONS));
  return [state, actions];
}

const obtained = (now: number, notAfter: number, notBefore = now): RenewalEvent => ({
  kind: 'obtained',
  now,
  askedAt: now,
  notBefore,
  notAfter,
  random: 0.5,
});
const failed = (now: number, random = 0.5): RenewalEvent => ({
  kind: 'failed',
  now,
  askedAt: now,
  why: 'down',
  random,
});
const wakeTime = (actions: readonly RenewalAction[]): number | undefined =>
  actions.findLast((action) => action.kind === 'wake-at')?.time;

describe('renewal', () => {
  it('asks at start, publishes, and asks again when the grace period begins', () => {
    const [available, actions] = play([{ kind: 'start', now: 0 }, obtained(0, HOUR)]);
    assert.deepEqual(actions, [{ kind: 'publish' }, { kind: 'wake-at', time: 30 * MINUTE }]);
    const [, early] = play([{ kind: 'wake', now: 29 * MINUTE }], available);
    assert.deepEqual(early, [{ kind: 'wake-at', time: 30 * MINUTE }]);
    const [, due] = play([{ kind: 'wake', now: 30 * MINUTE }], available);
    assert.deepEqual(due, [{ kind: 'obtain' }, { kind: 'wake-at', time: HOUR }]);
  });

  const granted: readonly [name: string, event: RenewalEvent, least: number, most: number][] = [
    ['ten minutes', obtained(0, 10 * MINUTE), 5 * MINUTE, 5 * MINUTE],
    ['two minutes', obtained(0, 2 * MINUTE), MINUTE, MINUTE],
    ['one second', obtained(0, 1_000), MIN_INTERVAL_MS, MIN_INTERVAL_MS],
    ['an hour that begins in a minute', obtained(0, HOUR, MINUTE), 30.5 * MINUTE, 30.5 * MINUTE],
    ['nothing: it has expired', obtained(0, -1), MIN_INTERVAL_MS, 1.2 * MIN_INTERVAL_MS],
    ['a date that is no number', obtained(0, Number.NaN), MIN_INTERVAL_MS, 1.2 * MIN_INTERVAL_MS],
  ];
  for (const [name, event, least, most] of granted) {
    it(`waits within bounds when the CA grants ${name} (R3)`, () => {
      const [state] = play([{ kind: 'start', now: 0 }, event]);
      assert.ok(state.nextAt >= least && state.nextAt <= most, `next attempt at ${state.nextAt}`);
    });
  }

  it('keeps the current certificate through failures and retries for ever: seldom while there is time, often near the end', () => {
    let [state] = play([{ kind: 'start', now: 0 }, obtained(0, 24 * HOUR)]);
    let now = 12 * HOUR;
    const waits: { left: number; wait: number }[] = [];
    while (now < 24 * HOUR + MINUTE) {
      [state] = play([{ kind: 'wake', now }, failed(now, waits.length % 2 ? 0.999 : 0)], state);
      const left = 24 * HOUR - now;
      waits.push({ left, wait: state.nextAt - now });
      now = state.nextAt;
    }
    for (const { left, wait } of waits) {
      assert.ok(wait >= MIN_INTERVAL_MS, `${wait}`);
      assert.ok(wait <= Math.max(Math.min(left * 0.05, 300_000), 3_000) * 1.2, `${wait} with ${left} left`);
    }
    assert.ok(waits.length < 400, `${waits.length} attempts in twelve hours`);
    const late = waits.filter(({ left }) => left < MINUTE);
    assert.ok(late.length > 30, `${late.length} attempts in the last minute and the one after`);
    assert.equal(state.kind, 'unavailable');
  });

  it('asks every few seconds while it has no certificate at all', () => {
    let [state] = play([{ kind: 'start', now: 0 }]);
    let now = 0;
    for (let tries = 0; tries < 50; tries++) {
      [state] = play([failed(now, 0.999)], { ...state, inFlight: true });
      assert.ok(state.nextAt - now <= 3_600, `${state.nextAt - now}`);
      now = state.nextAt;
    }
  });

  it('takes a certificate that is not valid yet, after the clock was set back, like one that has expired; and back', () => {
    const [available] = play([{ kind: 'start', now: 5 * HOUR }, obtained(5 * HOUR, 6 * HOUR, 5 * HOUR - MINUTE)]);
    const [early, actions] = play([{ kind: 'wake', now: HOUR }], available);
    assert.equal(early.kind, 'unavailable');
    assert.deepEqual(
      actions.map((action) => (action.kind === 'report' ? action.change : action.kind)),
      ['withdraw', 'not-yet-valid'].concat(early.inFlight ? ['obtain'] : ['wake-at']),
    );
    const [again, restored] = play([failed(HOUR, 0.5), { kind: 'wake', now: 5 * HOUR }], { ...early, inFlight: true });
    assert.equal(again.kind, 'available');
    assert.equal(restored[0]?.kind, 'restore');
  });

  it('asks within the time that it is told when the CA is back, and not twice within a second', () => {
    const [available] = play([{ kind: 'start', now: 0 }, obtained(0, 24 * HOUR)]);
    let state = available;
    for (let now = 12 * HOUR, tries = 0; tries < 10; tries++, now = state.nextAt) {
      [state] = play([{ kind: 'wake', now }, failed(now)], state);
    }
    const now = state.askedAt + 100;
    const [hurried] = play([{ kind: 'hurry', now, within: 2_000, random: 0.5 }], state);
    assert.equal(hurried.nextAt, state.askedAt + MIN_INTERVAL_MS + 1_000);
  });

  it('reports an outage once, and its end once', () => {
    const reports: string[] = [];
    let [state] = play([{ kind: 'start', now: 0 }, obtained(0, HOUR)]);
    for (const event of [failed(1), failed(2), failed(3), obtained(4, HOUR), obtained(5, HOUR)]) {
      const step = renew({ ...state, inFlight: true }, event, OPTIONS);
      state = step.state;
      for (const action of step.actions) if (action.kind === 'report') reports.push(action.change);
    }
    assert.deepEqual(reports, ['failing', 'recovered']);
  });

  it('withdraws the certificate at its end, and goes on asking', () => {
    const [outage] = play([
      { kind: 'start', now: 0 },
      obtained(0, HOUR),
      { kind: 'wake', now: 30 * MINUTE },
      failed(30 * MINUTE),
    ]);
    const [state, actions] = play([{ kind: 'wake', now: HOUR }], outage);
    assert.equal(state.kind, 'unavailable');
    assert.deepEqual(actions, [{ kind: 'withdraw' }, { kind: 'report', change: 'expired' }, { kind: 'obtain' }]);
    const [back] = play([obtained(HOUR + 1, 2 * HOUR)], state);
    assert.equal(back.kind, 'available');
  });

  it('withdraws at its end also while an attempt hangs', () => {
    const [hanging, actions] = play([{ kind: 'start', now: 0 }, obtained(0, HOUR), { kind: 'wake', now: 30 * MINUTE }]);
    assert.equal(wakeTime(actions), HOUR);
    const [state] = play([{ kind: 'wake', now: HOUR }], hanging);
    assert.equal(state.kind, 'unavailable');
    assert.equal(state.inFlight, true);
  });

  it('never asks twice within a second by itself, whatever the lifetimes', () => {
    let state = initialRenewal;
    let now = 0;
    let asked = Number.NEGATIVE_INFINITY;
    ({ state } = renew(state, { kind: 'start', now }, OPTIONS));
    for (let turn = 0; turn < 200; turn++) {
      assert.ok(state.askedAt - asked >= MIN_INTERVAL_MS, `asked at ${asked} and ${state.askedAt}`);
      asked = state.askedAt;
      now += 7;
      const lifetime = [1, 500, 1_000, 2_000, -5, Number.NaN][turn % 6] ?? 0;
      ({ state } = renew(state, obtained(now, now + lifetime), OPTIONS));
      while (!state.inFlight) {
        now += 50;
        ({ state } = renew(state, { kind: 'wake', now }, OPTIONS));
      }
    }
  });

  it('rotates at once when a person asks, also within a second of the last time', () => {
    const [available] = play([{ kind: 'start', now: 0 }, obtained(0, HOUR)]);
    const [, actions] = play([{ kind: 'rotate', now: 1 }], available);
    assert.equal(actions[0]?.kind, 'obtain');
  });

  it('asks once more when a person asks while an older attempt is under way', () => {
    const [busy, none] = play([
      { kind: 'start', now: 0 },
      { kind: 'rotate', now: 1 },
      { kind: 'rotate', now: 2 },
    ]);
    assert.deepEqual(none, []);
    const [state, actions] = play([obtained(3, HOUR)], busy);
    assert.deepEqual(
      actions.map(({ kind }) => kind),
      ['publish', 'obtain', 'wake-at'],
    );
    const [, after] = play([obtained(4, HOUR)], state);
    assert.ok(!after.some(({ kind }) => kind === 'obtain'));
  });
});
