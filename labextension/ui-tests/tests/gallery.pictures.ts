/**
 * Takes a sheet of pictures of each state of the panel, for people who review its looks: in two widths, three themes,
 * with forced colours, and as seen without any colour. `make pictures` writes them to labextension/ui-tests/pictures.
 */
import * as fs from 'fs';
import * as path from 'path';

import { galata, IJupyterLabPageFixture, test as base } from '@jupyterlab/galata';
import { Locator } from '@playwright/test';

import {
  connect,
  disconnect,
  expect,
  kubectl,
  kubectlApply,
  kubectlAt,
  LOCAL,
  newNotebook,
  openPanel,
  PORT,
  proxies,
  section,
  slice,
  start,
  test,
  THEMES,
  widen,
  withoutWorker
} from './helpers';

const PLACE = process.env.PATHWAYS_UI_IMAGES || path.join(__dirname, '..', 'pictures');
const WIDTHS = [250, 400];
const [[LIGHT]] = THEMES;

/** Take the panel's picture in each look and width, and write them beside each other. */
async function sheet(page: IJupyterLabPageFixture, panel: Locator, name: string): Promise<void> {
  const taken: { look: string; width: number; data: string }[] = [];
  const take = async (look: string) => {
    for (const width of WIDTHS) {
      await widen(page, panel, width);
      await page.mouse.move(900, 5);
      taken.push({ look, width, data: (await panel.screenshot()).toString('base64') });
    }
  };
  for (const [theme, look] of THEMES) {
    await page.theme.setTheme(theme);
    await take(look);
  }
  await page.theme.setTheme(LIGHT);
  await page.emulateMedia({ forcedColors: 'active' });
  await take('forced colours');
  await page.emulateMedia({ forcedColors: 'none' });
  // Galata wraps its page, which this does not take.
  const browser = await page.context().newCDPSession(page.context().pages()[0]);
  await browser.send('Emulation.setEmulatedVisionDeficiency', { type: 'achromatopsia' });
  await take('achromatopsia');
  await browser.send('Emulation.setEmulatedVisionDeficiency', { type: 'none' });
  await widen(page, panel, WIDTHS[0]);

  const figures = taken.map(
    ({ look, width, data }) =>
      `<figure><figcaption>${look}, ${width} px</figcaption><img src="data:image/png;base64,${data}"></figure>`
  );
  const paper = await page.context().newPage();
  await paper.setViewportSize({ width: 2040, height: 800 });
  await paper.setContent(
    `<style>body { display: flex; flex-wrap: wrap; gap: 8px; margin: 8px; font: 14px sans-serif }
     figure { margin: 0 } img { border: 1px solid gray }</style>${figures.join('')}`
  );
  fs.mkdirSync(PLACE, { recursive: true });
  await paper.screenshot({ path: path.join(PLACE, `${name}.png`), fullPage: true });
  await paper.close();
}

/** Keep new pods from starting during `during`. */
async function withoutNodes(during: () => Promise<void>): Promise<void> {
  const nodes = kubectl('get', 'nodes', '-o', 'name')
    .trim()
    .split('\n')
    .map(name => name.replace('node/', ''));
  kubectl('cordon', ...nodes);
  try {
    await during();
  } finally {
    kubectl('uncordon', ...nodes);
  }
}

test('a session from connecting to its end', async ({ page }) => {
  test.slow();
  await newNotebook(page, 'training.ipynb');
  const panel = await openPanel(page);
  await expect(slice(panel, 1)).toHaveAttribute('data-health', 'ready');
  await sheet(page, panel, 'free');
  const session = panel.locator('.pw-session');
  await withoutNodes(async () => {
    await start(page, '%load_ext pathways_jupyter\n%pathways connect --local --tpu tpuv6e:2x2=2');
    await expect(section(panel, 'events')).toContainText(/waits for a node|is starting/);
    await sheet(page, panel, 'connecting');
  });
  await expect(session).toHaveAttribute('data-state', 'connected');
  await expect(slice(panel, 1)).toHaveAttribute('data-owner', 'this');
  await sheet(page, panel, 'connected');
  await slice(panel, 1).click();
  await sheet(page, panel, 'details');
  await page.keyboard.press('Escape');
  await withoutWorker(1, async () => {
    await expect(session).toHaveAttribute('data-state', 'degraded');
    await sheet(page, panel, 'degraded');
  });
  await expect(session).toHaveAttribute('data-state', 'connected');
  kubectl('delete', ...proxies().trim().split('\n'));
  await expect(session).toHaveAttribute('data-state', 'lost');
  await sheet(page, panel, 'lost');
  await disconnect(page, panel);
  await expect(section(panel, 'events')).toContainText(/Session \w+ has ended/);
  await sheet(page, panel, 'ended');
});

test('two notebooks, and someone else', async ({ page }) => {
  test.slow();
  const panel = await openPanel(page);
  await newNotebook(page, 'one.ipynb');
  await connect(page, panel, 1);
  await newNotebook(page, 'two.ipynb');
  await connect(page, panel, 1, 1);
  await expect(slice(panel, 1)).toHaveAttribute('data-owner', 'this');
  await sheet(page, panel, 'two-notebooks');
  await disconnect(page, panel);
  await page.notebook.activate('one.ipynb');
  await disconnect(page, panel);

  await newNotebook(page, 'alice.ipynb');
  await start(
    page,
    'import os\nos.environ["LOGNAME"] = "alice"\n%load_ext pathways_jupyter\n%pathways connect --local --tpu tpuv6e:2x2=2'
  );
  const session = panel.locator('.pw-session');
  await expect(session).toHaveAttribute('data-state', 'connected');
  await page.notebook.activate('one.ipynb');
  await expect(slice(panel, 1)).toHaveAttribute('data-owner', 'other');
  await sheet(page, panel, 'someone-else');
  await page.notebook.activate('alice.ipynb');
  await disconnect(page, panel);
});

/** The port of the server whose hollow cluster has a thousand slices. */
const CROWD = PORT + 3;

/** Let `user` hold these slices of the crowded cluster, with a proxy that only logs its slices: there are no workers. */
function hold(user: string, slices: readonly number[]): void {
  const lines = slices.map(
    (slice, index) => `Transition slice ${index} (${TYPE}) pending -> placed on ${worker(slice)}`
  );
  const flags = [
    '--resource_manager_address=pathways-cluster-pathways-head-0-0.pathways-cluster:29001',
    `--virtual_slices=${slices.map(() => TYPE).join()}`
  ];
  const labels = { 'pathways-jupyter/session': `of-${user}`, 'pathways-jupyter/user': user };
  const container = {
    name: 'pathways-proxy',
    image: 'busybox:1',
    command: ['sh', '-c', 'echo "$LINES"; exec sleep 3600', 'proxy'],
    args: flags,
    env: [{ name: 'LINES', value: lines.join('\n') }]
  };
  const template = { metadata: { labels }, spec: { restartPolicy: 'Never', containers: [container] } };
  const metadata = { name: `pathways-proxy-${user}`, namespace: 'default', labels };
  kubectlApply({ apiVersion: 'batch/v1', kind: 'Job', metadata, spec: { template } }, CROWD);
}

const TYPE = 'tpuv6e:2x2';
const worker = (slice: number) => `pathways-cluster-worker-${slice}`;
const range = (from: number, to: number) => Array.from({ length: to - from }, (_, index) => from + index);

/** Lose the nodes of some slices, whose new workers wait for them, and let the workers of others keep crashing. */
function breakSome(starting: readonly number[], down: readonly number[]): void {
  const { items } = JSON.parse(kubectlAt(CROWD, 'get', 'pods', '-o', 'json'));
  const podsOf = (slices: readonly number[]) => {
    const jobs = slices.map(worker);
    return items.filter(({ metadata }: any) => jobs.includes(metadata.labels['batch.kubernetes.io/job-name']));
  };
  const names = (pods: any[]) => pods.map(pod => pod.metadata.name);
  const lost = podsOf(starting);
  kubectlAt(CROWD, 'cordon', ...lost.map((pod: any) => pod.spec.nodeName));
  kubectlAt(CROWD, 'delete', 'pod', ...names(lost), '--wait=false');
  const waiting = { name: 'pathways-worker', ready: false, state: { waiting: { reason: 'CrashLoopBackOff' } } };
  const status = { conditions: [{ type: 'Ready', status: 'False' }], containerStatuses: [waiting] };
  const patch = JSON.stringify({ status });
  kubectlAt(CROWD, 'patch', 'pod', ...names(podsOf(down)), '--subresource=status', '--type=merge', '-p', patch);
}

base.describe('Many', () => {
  base.use({ baseURL: `http://127.0.0.1:${CROWD}`, mockSettings: LOCAL });

  base('a thousand slices', async ({ page }) => {
    base.slow();
    await newNotebook(page, 'training.ipynb');
    const panel = await openPanel(page);
    const shown = (health: string) => panel.locator(`.pw-slice[data-health="${health}"]`);
    await expect(shown('ready')).toHaveCount(1000, { timeout: 300_000 });
    hold('alice', range(0, 40));
    hold('bob', [...range(64, 96), ...range(200, 300)]);
    breakSome([...range(20, 24), ...range(100, 164)], [12, 13, 47, 70, 98, 170, 250, 401, 402, 403, 733]);
    // For their holder, those that start again are down.
    await expect(shown('starting')).toHaveCount(64, { timeout: 300_000 });
    await expect(shown('down')).toHaveCount(15);
    await expect(panel.locator('.pw-slice[data-owner="other"]')).toHaveCount(172);
    await sheet(page, panel, 'thousand');
  });
});

base.describe('Unreachable', () => {
  base.use({ mockSettings: galata.DEFAULT_SETTINGS });

  base('a cluster that does not answer', async ({ page }) => {
    await newNotebook(page, 'training.ipynb');
    const panel = await openPanel(page);
    await expect(section(panel, 'slices').getByRole('alert')).toContainText('127.0.0.1:1');
    await sheet(page, panel, 'unreachable');
  });
});

base.describe('First use', () => {
  base.use({ baseURL: `http://127.0.0.1:${PORT + 2}` });

  base('nothing set up', async ({ page }) => {
    const panel = await openPanel(page);
    await expect(panel).toContainText('No cluster is configured yet.');
    await sheet(page, panel, 'nothing');
  });
});
