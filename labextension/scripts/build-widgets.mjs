// Bundles the notebook's widgets from the sidebar's own components: one ES module and one stylesheet, for anywidget.
// Preact stands in for React, because the bundle travels to the browser with every notebook that shows it.
import { build } from 'esbuild';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = join(dirname(fileURLToPath(import.meta.url)), '..');
await build({
  entryPoints: [join(here, 'src/widgets/index.ts')],
  outfile: join(here, '../pathways_jupyter/widgets/static/widgets.js'),
  alias: { react: 'preact/compat', 'react-dom': 'preact/compat', 'react-dom/client': 'preact/compat/client' },
  bundle: true,
  format: 'esm',
  legalComments: 'none',
  minify: true,
  target: 'es2022'
});
await build({
  entryPoints: [join(here, 'style/pictures.css')],
  outfile: join(here, '../pathways_jupyter/widgets/static/widgets.css'),
  minify: true
});
