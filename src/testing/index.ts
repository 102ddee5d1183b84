/** For tests of what uses sdsd: time that stands still until it is told, and a CA that fails on command. */
export { type CaFault, TestCa } from './test-ca.js';
export { VirtualClock } from './virtual-clock.js';
