/** `npm run soak`: 100,000 clients that come and go and 10,000 rotations, about two minutes. Exits with 1 if anything grew. */
import { growth, soak } from '../test/support/soak.js';

const result = await soak({ cycles: 100_000, rotations: 10_000 });
console.table(result);
const faults = growth(result);
for (const fault of faults) console.error(fault);
process.exitCode = faults.length > 0 ? 1 : 0;
