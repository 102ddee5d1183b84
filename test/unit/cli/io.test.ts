import assert from 'node:assert/strict';
import inspector from 'node:inspector';
import { Writable } from 'node:stream';
import { describe, it } from 'node:test';
import { closeUnaskedInspector } from '../../../src/cli/inspector.js';
import { outputStream } from '../../../src/cli/io.js';

/** A stream whose reader reads when it is told to. */
function stalled(): { stream: Writable; text: () => string; read: () => void } {
  const waiting: (() => void)[] = [];
  let text = '';
  let reads = false;
  const stream = new Writable({
    write(chunk: Buffer, _encoding, done) {
      const take = (): void => {
        text += chunk.toString();
        done();
      };
      if (reads) take();
      else waiting.push(take);
    },
  });
  return {
    stream,
    text: () => text,
    read: () => {
      reads = true;
      for (const take of waiting.splice(0)) take();
    },
  };
}

describe('an output whose reader has stopped to read', () => {
  it('keeps so much and no more, and says how many lines were lost', async () => {
    const { stream, text, read } = stalled();
    const output = outputStream(stream, 'the log', 1_000);
    for (let i = 0; i < 100; i++) output.write(`${'x'.repeat(99)}\n`);
    assert.ok(stream.writableLength <= 1_100, String(stream.writableLength));
    read();
    await output.flush();
    output.write('again\n');
    await output.flush();
    assert.equal(
      text()
        .split('\n')
        .filter((line) => line.startsWith('x')).length,
      11,
    );
    assert.match(text(), /sdsd: 89 lines of this output were lost: nobody read it\nagain\n$/);
  });

  it('is waited for no longer than was said', async () => {
    const { stream } = stalled();
    const output = outputStream(stream, 'the log', 1_000);
    output.write('never read\n');
    await output.flush(10);
  });
});

describe("Node's inspector", () => {
  it('is closed when nobody asked for it, and left open otherwise', () => {
    inspector.open(0, '127.0.0.1');
    closeUnaskedInspector({ NODE_OPTIONS: '--inspect=0' });
    assert.ok(inspector.url());
    closeUnaskedInspector({});
    assert.equal(inspector.url(), undefined);
  });
});
