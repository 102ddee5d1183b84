#!/usr/bin/env node
// Until somebody listens, SIGUSR1 opens Node's inspector, through which others could run code: so this comes first.
process.on('SIGUSR1', () => undefined);

const [{ processIo }, { runCli }, { closeUnaskedInspector }] = await Promise.all([
  import('./cli/io.js'),
  import('./cli/program.js'),
  import('./cli/inspector.js'),
]);
const io = processIo();
closeUnaskedInspector(io.env);
process.exit(await runCli(process.argv.slice(2), io));
