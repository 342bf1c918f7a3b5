/** Tests of a real JupyterLab on the embedded cluster, in the system's browser. */
const { execFileSync } = require('child_process');

const base = require('@jupyterlab/galata/lib/playwright-config');

const kind =
  ['bench', 'pictures', 'installed'].find(each =>
    [each, `--project=${each}`].some(word => process.argv.includes(word))
  ) ?? '';
/** Files that are tested at a time, each with servers and clusters of its own: a test mostly waits. */
const WORKERS = kind ? 1 : Number(process.env.PATHWAYS_UI_WORKERS ?? 2);
const PORTS_OF_A_WORKER = 4;
// Free ports, so that several runs on one machine never share a server. The workers inherit the choice.
const given = process.env.PATHWAYS_UI_PORT;
process.env.PATHWAYS_UI_PORT ||= execFileSync(
  process.execPath,
  [require.resolve('./free-ports.js'), String(WORKERS * PORTS_OF_A_WORKER)],
  { encoding: 'utf-8' }
).trim();
const portOf = worker => Number(process.env.PATHWAYS_UI_PORT) + worker * PORTS_OF_A_WORKER;
// Playwright loads this file again in each worker, where it has set the worker's number.
const PORT = portOf(Number(process.env.TEST_PARALLEL_INDEX ?? 0));
process.env.PATHWAYS_UI_OWN_PORT = String(PORT);
const flags = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync'
];
const server = (port, what, env = {}) => ({
  command: `python start.py ${port} ${what}`,
  env,
  url: `http://127.0.0.1:${port}/lab`,
  timeout: 120_000,
  // Only by hand, where the port is given: a server that runs already saves its start.
  reuseExistingServer: !!given,
  gracefulShutdown: { signal: 'SIGTERM', timeout: 20_000 }
});

const usual = port => [server(port, ''), server(port + 1, 'without'), server(port + 2, 'bare')];

module.exports = {
  ...base,
  timeout: 240_000,
  expect: { timeout: 60_000 },
  retries: 0,
  workers: WORKERS,
  reporter: [['list']],
  use: {
    ...base.use,
    baseURL: `http://127.0.0.1:${PORT}`,
    video: 'off',
    trace: 'off',
    viewport: { width: 1280, height: 800 },
    launchOptions: { executablePath: process.env.PATHWAYS_UI_BROWSER || '/usr/bin/chromium', args: flags }
  },
  projects: [
    { name: 'sidebar', testMatch: /.*\.spec\.ts/ },
    { name: 'bench', testMatch: /.*\.bench\.ts/ },
    { name: 'pictures', testMatch: /.*\.pictures\.ts/ },
    { name: 'installed', testMatch: /.*\.installed\.ts/ }
  ],
  webServer: {
    bench: [server(PORT, 'bench')],
    // Of whatever environment is first on the PATH, with the sidebar that was installed there.
    installed: [{ ...server(PORT, ''), command: 'python -m jupyterlab --config jupyter_server_config.py' }],
    // Its cluster has a node for each of so many slices, but no processes.
    pictures: [...usual(PORT), server(PORT + 3, 'bench', { PATHWAYS_UI_SLICES: '1000' })],
    '': Array.from({ length: WORKERS }, (_, worker) => usual(portOf(worker))).flat()
  }[kind]
};
