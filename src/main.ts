#!/usr/bin/env node
// Until somebody listens, SIGUSR1 opens Node's inspector, through which others could run code: so this comes first.
process.on('SIGUSR1', () => undefined);

try {
  const [{ processIo }, { runCli }, { closeUnaskedInspector }] = await Promise.all([
    import('./cli/io.js'),
    import('./cli/program.js'),
    import('./cli/inspector.js'),
  ]);
  const io = processIo();
  closeUnaskedInspector(io.env);
  process.exit(await runCli(process.argv.slice(2), io));
} catch (error) {
  // The program itself cannot be read: too few files may be open, or it is not installed whole.
  const message = error instanceof Error ? error.message : String(error);
  process.stderr.write(
    `sdsd: cannot start: ${message}\n  try: raise the limit of open files (ulimit -n), or install sdsd again\n`,
  );
  process.exit(1);
}
