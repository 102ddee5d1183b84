#!/usr/bin/env node
import { processIo } from './cli/io.js';
import { runCli } from './cli/program.js';

// A reader that has seen enough (`sdsd get default | head -1`) is no failure.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') throw error;
  process.exit(0);
});

process.exit(await runCli(process.argv.slice(2), processIo()));
