/** Before `npm pack`: a fresh build, so that the package never holds an old one. */
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { build, installDependencies, root } from './install.mjs';

installDependencies();
rmSync(join(root, 'dist'), { recursive: true, force: true });
build();
