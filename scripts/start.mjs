/** `npm start`: installs and builds what is missing, then runs the daemon in this process. */
import { build, installDependencies } from './install.mjs';

installDependencies();
build();
process.argv.splice(2, 0, 'run');
await import('../dist/main.js');
