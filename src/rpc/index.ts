export { controlPlaneIdentifier } from './control-plane.js';
export * from './descriptors.js';
export {
  type Decoded,
  type EndStatus,
  RpcServer,
  type StreamCall,
  type StreamHandler,
  status,
  type UnaryResult,
} from './server.js';
