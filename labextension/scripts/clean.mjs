// Remove the build's output.
import { rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = join(dirname(fileURLToPath(import.meta.url)), '..');
for (const made of ['lib', 'tsconfig.tsbuildinfo', '../pathways_jupyter/labextension']) {
  rmSync(join(here, made), { recursive: true, force: true });
}
