export { EMPTY_SETTINGS, HTTP2_GREETING, HTTP2_PREFACE } from './http2-preface.js';
export { keepListening } from './kept-socket.js';
export { lockDirectory } from './lock-socket.js';
export { type Probe, probeSocket } from './probe.js';
export { type ListenOptions, listenUnix, MAX_SOCKET_PATH_BYTES, type UnixListener } from './unix-socket.js';
