export { syncDirectory, writeFileAtomic, writeTemporary } from './atomic-file.js';
export { makeDirectories } from './directories.js';
export { closedToGroup, ownershipFault, type PathFault } from './ownership.js';
export { openStateDirectory, type StateDirectory, type StateDirectoryOptions } from './state-directory.js';
