import { close, url } from 'node:inspector';

/**
 * Closes Node's inspector if nobody asked for it: a SIGUSR1 that comes while Node itself starts opens it. Whoever wants it says
 * so with an option of Node.
 */
export function closeUnaskedInspector(env: Readonly<Record<string, string | undefined>>): void {
  if (url() === undefined) return;
  const options = [...process.execArgv, env['NODE_OPTIONS'] ?? ''];
  if (!options.some((option) => option.includes('--inspect'))) close();
}
