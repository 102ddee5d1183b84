import assert from 'node:assert/strict';
import { it } from 'node:test';
import fc from 'fast-check';
import { MessageCounter } from '../../../src/rpc/unfinished-messages.js';

it('knows how much of a message has come, however the bytes are cut', () => {
  fc.assert(
    fc.property(
      fc.array(fc.nat(40), { maxLength: 5 }),
      fc.nat(30),
      fc.array(fc.integer({ min: 1, max: 20 }), { minLength: 1 }),
      (lengths, begun, cuts) => {
        const message = (length: number, present: number): Buffer => {
          const head = Buffer.alloc(5);
          head.writeUInt32BE(length, 1);
          return Buffer.concat([head, Buffer.alloc(present)]);
        };
        const whole = lengths.map((length) => message(length, length));
        const bytes = Buffer.concat([...whole, message(begun + 1, begun)]);
        const counter = new MessageCounter();
        for (let at = 0, cut = 0; at < bytes.length; cut++) {
          const size = cuts[cut % cuts.length] ?? 1;
          counter.receive(bytes.subarray(at, at + size));
          at += size;
        }
        assert.equal(counter.unfinished, begun);
      },
    ),
  );
});
