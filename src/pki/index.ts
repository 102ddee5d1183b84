export type { Certificate } from './certificate.js';
