export { type ControlClient, controlClient, controlRequest } from './control-client.js';
export { type ControlServer, type ControlServerOptions, startControlServer } from './control-server.js';
export type * from './daemon-control.js';
