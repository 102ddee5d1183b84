/**
 * The protocol as tables: each row is one event and what the stream does about it, for both variants. Rules:
 * https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { type DeltaDiscoveryRequest, type DiscoveryRequest, SECRET_TYPE_URL } from '../../../src/rpc/index.js';
import { onDeltaRequest } from '../../../src/sds/delta.js';
import { onDiscoveryRequest } from '../../../src/sds/sotw.js';
import {
  type Action,
  changed,
  flush,
  initialState,
  type Offer,
  refresh,
  type StreamState,
} from '../../../src/sds/stream-state.js';

const NODE = { id: 'envoy-1' };

/** What a row says: the request as far as it matters, or `offer` for a change in the snapshot. */
interface Row {
  readonly step: string;
  readonly ask?: readonly string[];
  readonly drop?: readonly string[];
  readonly initial?: Readonly<Record<string, string>>;
  readonly nonce?: string | 'latest';
  readonly version?: string;
  readonly error?: string;
  readonly type?: string;
  readonly node?: null;
  readonly offer?: Readonly<Record<string, Offer>>;
  /** Names answered in one response, in order; undefined: silence. */
  readonly sends?: readonly string[];
  readonly removes?: readonly string[];
  readonly refuses?: string;
  readonly also?: readonly Action['kind'][];
}

const secret = (version: number): Offer => ({ kind: 'secret', version });

/** Runs a table against one stream. `A` and `B` are served from the start, at versions 11 and 12. */
function run(variant: 'sotw' | 'delta', rows: readonly Row[]): StreamState {
  let state = initialState(variant, 100);
  const offers = new Map<string, Offer>([
    ['A', secret(11)],
    ['B', secret(12)],
  ]);
  for (const row of rows) {
    const actions: Action[] = [];
    const take = (step: { state: StreamState; actions: readonly Action[] }): void => {
      state = step.state;
      actions.push(...step.actions);
    };
    if (row.offer) {
      for (const [name, offer] of Object.entries(row.offer)) {
        offers.set(name, offer);
        take(changed(state, name));
      }
    } else {
      const nonce = row.nonce === 'latest' ? state.nonce : (row.nonce ?? '');
      take(
        variant === 'sotw'
          ? onDiscoveryRequest(state, sotwRequest(row, nonce))
          : onDeltaRequest(state, deltaRequest(row, nonce)),
      );
    }
    take(flush(state, (name) => offers.get(name) ?? { kind: 'pending' }));
    const responses = actions.filter((action) => action.kind === 'respond');
    assert.deepEqual(
      responses.map(({ answers, removed }) => ({ names: answers.map(({ name }) => name), removed })),
      row.sends || row.removes ? [{ names: row.sends ?? [], removed: row.removes ?? [] }] : [],
      `${row.step}: responses`,
    );
    const refused = actions.find((action) => action.kind === 'refuse');
    if (row.refuses === undefined) assert.equal(refused, undefined, `${row.step}: not refused`);
    else assert.match(refused?.why ?? '', new RegExp(row.refuses), `${row.step}: refused`);
    for (const kind of row.also ?? []) {
      assert.ok(
        actions.some((action) => action.kind === kind),
        `${row.step}: ${kind}`,
      );
    }
  }
  return state;
}

function sotwRequest(row: Row, responseNonce: string): DiscoveryRequest {
  return {
    versionInfo: row.version ?? '',
    node: row.node === null ? null : NODE,
    resourceNames: row.ask ?? [],
    typeUrl: row.type ?? SECRET_TYPE_URL,
    responseNonce,
    errorDetail: row.error === undefined ? null : { code: 13, message: row.error },
  };
}

function deltaRequest(row: Row, responseNonce: string): DeltaDiscoveryRequest {
  return {
    node: row.node === null ? null : NODE,
    typeUrl: row.type ?? SECRET_TYPE_URL,
    resourceNamesSubscribe: row.ask ?? [],
    resourceNamesUnsubscribe: row.drop ?? [],
    initialResourceVersions: row.initial ?? {},
    responseNonce,
    errorDetail: row.error === undefined ? null : { code: 13, message: row.error },
  };
}

interface Table {
  readonly name: string;
  readonly rows: readonly Row[];
}

const sotwTables: readonly Table[] = [
  {
    name: 'answers a first request, and only what a later one adds (SDS-01)',
    rows: [
      { step: 'first', ask: ['A'], sends: ['A'], also: ['subscribe'] },
      { step: 'ACK that adds a name', ask: ['A', 'B'], nonce: 'latest', sends: ['B'] },
      { step: 'ACK', ask: ['A', 'B'], nonce: 'latest' },
    ],
  },
  {
    name: 'answers again when asked without a nonce (SDS-03)',
    rows: [
      { step: 'first', ask: ['A'], sends: ['A'] },
      { step: 'again', ask: ['A'], sends: ['A'] },
      { step: 'ACK', ask: ['A'], nonce: 'latest' },
    ],
  },
  {
    name: 'takes a nonce and a version of an earlier stream as a first request (SDS-09, X6)',
    rows: [{ step: 'reconnect', ask: ['A'], nonce: 'old', version: '7', sends: ['A'] }],
  },
  {
    name: 'takes a NACK as the first message for a first request (SDS-18)',
    rows: [{ step: 'NACK first', ask: ['A'], nonce: 'old', error: 'no', sends: ['A'] }],
  },
  {
    name: 'ignores the names of a request that answers an overtaken response',
    rows: [
      { step: 'first', ask: ['A'], sends: ['A'] },
      { step: 'push', offer: { A: secret(13) }, sends: ['A'] },
      { step: 'stale ACK that adds a name', ask: ['A', 'B'], nonce: '11' },
      { step: 'ACK that adds a name', ask: ['A', 'B'], nonce: 'latest', sends: ['B'] },
    ],
  },
  {
    name: 'ends a subscription with an empty list, whatever the nonce, and stays silent (SDS-12)',
    rows: [
      { step: 'first', ask: ['A'], sends: ['A'] },
      { step: 'unsubscribe', ask: [], nonce: 'latest', also: ['unsubscribe'] },
      { step: 'push', offer: { A: secret(13) } },
      { step: 'a nonce without a subscription', ask: ['A'], nonce: '11', sends: ['A'] },
    ],
  },
  {
    name: 'is silent about names that are removed or stay',
    rows: [
      { step: 'first', ask: ['A', 'B'], sends: ['A', 'B'] },
      { step: 'fewer', ask: ['B'], nonce: 'latest', also: ['unsubscribe'] },
      { step: 'the same', ask: ['B'], nonce: 'latest' },
      { step: 'push of the dropped name', offer: { A: secret(13) } },
      { step: 'push of the kept name', offer: { B: secret(14) }, sends: ['B'] },
    ],
  },
  {
    name: 'answers a NACK with silence until the content changes (SDS-13, X1)',
    rows: [
      { step: 'first', ask: ['A'], sends: ['A'] },
      { step: 'NACK', ask: ['A'], nonce: 'latest', error: 'bad', also: ['rejected'] },
      { step: 'NACK again', ask: ['A'], nonce: 'latest', error: 'bad' },
      { step: 'the snapshot repeats itself', offer: { A: secret(11) } },
      { step: 'new content', offer: { A: secret(13) }, sends: ['A'] },
    ],
  },
  {
    name: 'answers the name that a NACK adds, and not the rejected one (X3)',
    rows: [
      { step: 'first', ask: ['A'], sends: ['A'] },
      {
        step: 'NACK that adds a name',
        ask: ['A', 'B'],
        nonce: 'latest',
        error: 'bad',
        sends: ['B'],
        also: ['rejected'],
      },
    ],
  },
  {
    name: 'leaves out what is not served, and sends it on the same stream once it is (SDS-05, X9, X11)',
    rows: [
      { step: 'one served, one unknown', ask: ['A', 'X'], sends: ['A'] },
      { step: 'still unknown', offer: { X: { kind: 'denied' } } },
      { step: 'there', offer: { X: secret(15) }, sends: ['X'] },
    ],
  },
  {
    name: 'ignores the wildcard, and warns once',
    rows: [
      { step: 'wildcard alone', ask: ['*'], also: ['warn'] },
      { step: 'wildcard and a name', ask: ['*', 'A'], sends: ['A'] },
    ],
  },
  {
    name: 'answers a name once that a request repeats',
    rows: [{ step: 'twice the same', ask: ['A', 'A'], sends: ['A'] }],
  },
];

const deltaTables: readonly Table[] = [
  {
    name: 'answers each subscription, also to what the client says it has (X5)',
    rows: [
      { step: 'first', ask: ['A'], sends: ['A'] },
      { step: 'ACK', nonce: 'latest', also: ['acknowledged'] },
      { step: 'subscribed again', ask: ['A'], sends: ['A'] },
      { step: 'with its version', ask: ['A'], initial: { A: '11' }, sends: ['A'] },
    ],
  },
  {
    name: 'takes a nonce of an earlier stream as a first request (X6)',
    rows: [{ step: 'reconnect', ask: ['A'], nonce: 'old', initial: { A: '11' }, sends: ['A'] }],
  },
  {
    name: 'applies subscriptions whatever the nonce, and also in a NACK (X3)',
    rows: [
      { step: 'first', ask: ['A'], sends: ['A'] },
      { step: 'NACK that subscribes', ask: ['B'], nonce: 'latest', error: 'bad', sends: ['B'], also: ['rejected'] },
      { step: 'unknown nonce', ask: ['B'], nonce: 'never sent', sends: ['B'] },
    ],
  },
  {
    name: 'tells at once that a name is not served, and answers when it is',
    rows: [
      { step: 'offer', offer: { X: { kind: 'denied' } } },
      { step: 'unknown', ask: ['X'], removes: ['X'] },
      { step: 'asked again', ask: ['X'], removes: ['X'] },
      { step: 'there', offer: { X: secret(15) }, sends: ['X'] },
    ],
  },
  {
    name: 'tells at once that a name is longer than any can be, and does not remember it',
    rows: [
      { step: 'too long', ask: ['x'.repeat(3_000), 'A'], sends: ['A'], removes: ['x'.repeat(3_000)] },
      { step: 'ACK', nonce: 'latest' },
    ],
  },
  {
    name: 'says nothing of a name that is not there yet',
    rows: [
      { step: 'pending', ask: ['X'] },
      { step: 'there', offer: { X: secret(15) }, sends: ['X'] },
      { step: 'pending again keeps the last good one', offer: { X: { kind: 'pending' } } },
    ],
  },
  {
    name: 'sends one removal for what the client holds, and takes its NACK calmly (X7)',
    rows: [
      { step: 'first', ask: ['A'], sends: ['A'] },
      { step: 'taken away', offer: { A: { kind: 'gone' } }, removes: ['A'] },
      { step: 'NACK', nonce: 'latest', error: 'missing resource' },
      { step: 'still away', offer: { A: { kind: 'gone' } } },
      { step: 'back', offer: { A: secret(16) }, sends: ['A'] },
    ],
  },
  {
    name: 'says nothing of a name after its subscription ended (X7)',
    rows: [
      { step: 'first', ask: ['A'], sends: ['A'] },
      { step: 'unsubscribe', drop: ['A'], also: ['unsubscribe'] },
      { step: 'taken away', offer: { A: { kind: 'gone' } } },
      { step: 'changed', offer: { A: secret(17) } },
    ],
  },
  {
    name: 'answers a NACK with silence until the content changes (X1)',
    rows: [
      { step: 'first', ask: ['A'], sends: ['A'] },
      { step: 'NACK', nonce: 'latest', error: 'bad', also: ['rejected'] },
      { step: 'new content', offer: { A: secret(13) }, sends: ['A'] },
    ],
  },
  {
    name: 'ignores an empty subscription and the wildcard',
    rows: [{ step: 'nothing asked' }, { step: 'wildcard', ask: ['*'], also: ['warn'] }],
  },
];

const commonTables: readonly Table[] = [
  {
    name: 'refuses a first request without a node (SDS-18)',
    rows: [{ step: 'no node', node: null, ask: ['A'], refuses: '^missing node information: .*node\\.id' }],
  },
  {
    name: 'needs the node only once',
    rows: [
      { step: 'first', ask: ['A'], sends: ['A'] },
      { step: 'ACK without node', node: null, ask: ['A'], nonce: 'latest' },
    ],
  },
  {
    name: 'refuses another type URL, first or later (SDS-18)',
    rows: [
      {
        step: 'clusters',
        type: 'type.googleapis.com/envoy.config.cluster.v3.Cluster',
        ask: ['A'],
        refuses: 'type URL',
      },
    ],
  },
  {
    name: 'takes an empty type URL as Secret',
    rows: [{ step: 'no type', type: '', ask: ['A'], sends: ['A'] }],
  },
];

describe('state of the world', () => {
  for (const { name, rows } of [...sotwTables, ...commonTables]) it(name, () => void run('sotw', rows));
});

describe('delta', () => {
  for (const { name, rows } of deltaTables) it(name, () => void run('delta', rows));
  for (const { name, rows } of commonTables.filter(({ name }) => !name.includes('only once'))) {
    it(name, () => void run('delta', rows));
  }
});

describe('a rejected secret', () => {
  const nack = (state: StreamState, error: string): StreamState =>
    onDeltaRequest(state, deltaRequest({ step: '', error }, state.nonce)).state;
  const subscribed = (): StreamState =>
    flush(onDeltaRequest(initialState('delta', 100), deltaRequest({ step: '', ask: ['A'] }, '')).state, () =>
      secret(11),
    ).state;

  it('is told as repaired when the client accepts its successor, and not before', () => {
    let state = nack(subscribed(), 'bad');
    ({ state } = flush(changed(state, 'A').state, () => secret(13)));
    const { actions } = onDeltaRequest(state, deltaRequest({ step: '' }, state.nonce));
    assert.deepEqual(actions, [{ kind: 'acknowledged', names: ['A'], repaired: ['A'] }]);
  });

  it('is sent in other bytes if the client asks for it again: the same ones it would not look at', () => {
    const paddings: number[] = [];
    let state = nack(subscribed(), 'bad');
    for (let round = 0; round < 3; round++) {
      ({ state } = onDeltaRequest(state, deltaRequest({ step: '', ask: ['A'] }, '')));
      const step = flush(state, () => secret(11));
      state = nack(step.state, 'bad');
      for (const action of step.actions) if (action.kind === 'respond') paddings.push(action.answers[0]?.padding ?? -1);
    }
    assert.deepEqual(paddings, [1, 2, 3]);
  });

  it('has its partner sent anew, once, in other bytes; an ACK of that repairs nothing further', () => {
    const state = nack(subscribed(), "the other one's fault");
    const fresh = refresh(state, 'A').state;
    const step = flush(fresh, () => secret(11));
    assert.deepEqual(
      step.actions.map((action) => action.kind === 'respond' && action.answers),
      [[{ name: 'A', padding: 1 }]],
    );
    const ack = onDeltaRequest(step.state, deltaRequest({ step: '' }, step.state.nonce));
    assert.deepEqual(ack.actions, [{ kind: 'acknowledged', names: ['A'], repaired: [] }]);
    assert.deepEqual(flush(ack.state, () => secret(11)).actions, []);
  });

  it('is not sent anew to a client that was never sent it', () => {
    const { state } = onDeltaRequest(initialState('delta', 100), deltaRequest({ step: '', ask: ['X'] }, ''));
    assert.deepEqual(flush(refresh(state, 'X').state, () => ({ kind: 'pending' })).actions, []);
  });
});

describe('either variant', () => {
  it('sends the newest only when the client could not take the ones between', () => {
    let { state } = onDiscoveryRequest(initialState('sotw', 100), sotwRequest({ step: '', ask: ['A'] }, ''));
    ({ state } = flush(state, () => secret(1)));
    for (let version = 2; version <= 50; version++) ({ state } = changed(state, 'A'));
    const { actions } = flush(state, () => secret(50));
    assert.deepEqual(actions, [{ kind: 'respond', answers: [{ name: 'A', padding: 0 }], removed: [], nonce: '50' }]);
  });

  it('gives every response of a stream a greater version and another nonce', () => {
    const seen: string[] = [];
    let state = initialState('sotw', 100);
    const ask = (names: string[]): void => {
      ({ state } = onDiscoveryRequest(state, sotwRequest({ step: '', ask: names }, '')));
      const step = flush(state, (name) => secret(name === 'A' ? 11 : 12));
      state = step.state;
      for (const action of step.actions) if (action.kind === 'respond') seen.push(action.nonce);
    };
    for (const names of [['B'], ['B', 'A'], ['A', 'B'], ['A', 'B']]) ask(names);
    assert.equal(seen.length, 4);
    assert.deepEqual(seen, [...new Set(seen)].sort());
  });

  it('clears the last error of a name with its next ACK', () => {
    let state = initialState('delta', 100);
    const offer = { version: 11 };
    const step = (row: Row, nonce: string): void => {
      ({ state } = onDeltaRequest(state, deltaRequest(row, nonce)));
      ({ state } = flush(state, () => secret(offer.version)));
    };
    step({ step: '', ask: ['A'] }, '');
    step({ step: '', error: 'bad' }, state.nonce);
    assert.equal(state.watches.get('A')?.rejected?.error, 'bad');
    offer.version = 13;
    ({ state } = changed(state, 'A'));
    step({ step: '' }, '');
    step({ step: '' }, state.nonce);
    assert.equal(state.watches.get('A')?.rejected, undefined);
    assert.equal(state.watches.get('A')?.holds, 13);
  });

  it('remembers a bounded number of responses that are never answered', () => {
    let { state } = onDiscoveryRequest(initialState('sotw', 100), sotwRequest({ step: '', ask: ['A'] }, ''));
    for (let version = 1; version <= 1_000; version++) {
      ({ state } = changed(state, 'A'));
      ({ state } = flush(state, () => secret(version)));
    }
    assert.ok(state.unanswered.length <= 100);
  });
});
