/** `npm start`: installs and builds what is missing, then runs the daemon in this process. */
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { build, installDependencies, root } from './install.mjs';

installDependencies();
build();
const main = join(root, 'dist', 'main.js');
// What is said to type next begins with the program that was started: without `run`, that is not this one.
process.argv.splice(1, 1, main, 'run');
await import(pathToFileURL(main).href);
