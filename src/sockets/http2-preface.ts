/** What every HTTP/2 client begins with: https://www.rfc-editor.org/rfc/rfc9113#section-3.4 */
export const HTTP2_PREFACE = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');

/** An empty SETTINGS frame: what client and server each must say first. */
export const EMPTY_SETTINGS = Buffer.from([0, 0, 0, 4, 0, 0, 0, 0, 0]);

/** All that a client has to say before an HTTP/2 server answers. */
export const HTTP2_GREETING = Buffer.concat([HTTP2_PREFACE, EMPTY_SETTINGS]);
