#!/usr/bin/env node
import { processIo } from './cli/io.js';
import { runCli } from './cli/program.js';

process.exit(await runCli(process.argv.slice(2), processIo()));
