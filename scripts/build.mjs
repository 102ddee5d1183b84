/** `npm run build`, and what `npm pack` does first: dist/ made anew, so that it never holds anything old. */
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { build, installDependencies, root } from './install.mjs';

installDependencies();
rmSync(join(root, 'dist'), { recursive: true, force: true });
build();
