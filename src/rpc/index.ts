export { controlPlaneIdentifier } from './control-plane.js';
export * from './descriptors.js';
export { keepListening } from './kept-socket.js';
export {
  type Decoded,
  type EndStatus,
  RpcServer,
  type StreamCall,
  type StreamHandler,
  status,
  type UnaryResult,
} from './server.js';
export {
  type ListenOptions,
  listenUnix,
  MAX_SOCKET_PATH_BYTES,
  probeSocket,
  type UnixListener,
} from './unix-socket.js';
