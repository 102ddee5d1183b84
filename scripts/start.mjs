/** `npm start`: installs and builds what is missing, then runs the daemon in this process. */
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { build, installDependencies, prepare, root } from './install.mjs';

// Until somebody listens, SIGUSR1 opens Node's inspector; the daemon gives it its own meaning.
process.on('SIGUSR1', () => undefined);
// npm passes a signal on to its shell alone, which dies of it, and the daemon would run on.
const parent = process.ppid;
setInterval(() => {
  if (process.ppid !== parent) process.kill(process.pid, 'SIGTERM');
}, 250).unref();

prepare(() => {
  installDependencies();
  build();
});
const main = join(root, 'dist', 'main.js');
// What is said to type next begins with the program that was started: without `run`, that is not this one.
process.argv.splice(1, 1, main, 'run');
await import(pathToFileURL(main).href);
