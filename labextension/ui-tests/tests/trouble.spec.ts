import { galata, test as base } from '@jupyterlab/galata';

import {
  connect,
  disconnect,
  expect,
  killWorker,
  LOCAL,
  newNotebook,
  openPanel,
  PORT,
  section,
  slice,
  unfold,
  Wire
} from './helpers';

base.describe('A cluster that does not answer', () => {
  base.use({ mockSettings: galata.DEFAULT_SETTINGS });

  base('is named, with what to do', async ({ page }) => {
    const panel = await openPanel(page);
    // Shown once, not in each section that is empty because of it.
    await expect(panel.getByRole('alert')).toHaveCount(1);
    await expect(section(panel, 'slices').getByRole('alert')).toContainText('127.0.0.1:1');
    await unfold(panel, 'Services & proxies');
    await expect(section(panel, 'services')).toContainText('Unknown.');
    await expect(section(panel, 'services')).not.toContainText('There are no proxies.');
    await expect(section(panel, 'session')).toContainText('No notebook is in front.');
  });
});

base.describe('A server without the extension', () => {
  base.use({ baseURL: `http://127.0.0.1:${PORT + 1}` });

  base('is recognized', async ({ page }) => {
    const panel = await openPanel(page);
    await expect(panel.getByRole('alert')).toContainText('does not have pathways_jupyter');
    await expect(panel.getByRole('alert')).toContainText('pip install');
    await panel.getByRole('button', { name: 'Try again' }).click();
    await expect(panel.getByRole('alert')).toContainText('does not have pathways_jupyter');
  });
});

base.describe('A server extension of another version', () => {
  base('is named beside the page’s own', async ({ page }) => {
    await page.routeWebSocket(/pathways-jupyter\/updates/, socket => {
      const server = socket.connectToServer();
      server.onMessage(message =>
        socket.send(String(message).replace(/("type":"hello","version":)"[^"]+"/, '$1"99.0"'))
      );
    });
    await page.reload();
    const panel = await openPanel(page);
    await expect(panel).toContainText(/The sidebar is version \d[\w.]*, the server extension version 99\.0\./);
    await expect(panel).toContainText('Reload the page');
  });
});

base.describe('A network that cuts connections', () => {
  const wire = new Wire(PORT + 3);
  base.use({ baseURL: `http://127.0.0.1:${PORT + 3}`, mockSettings: LOCAL });
  base.beforeAll(() => wire.open());
  base.afterAll(() => wire.close());

  base.slow();

  base('takes no event along, also when it does so while they arrive', async ({ page }) => {
    await newNotebook(page);
    const panel = await openPanel(page);
    await connect(page, panel);
    const events = section(panel, 'events');
    for (let round = 1; round <= 3; round++) {
      killWorker(1);
      wire.cut('pathways-jupyter/updates');
      // One entry for the loss and the recovery; without the event of the loss, it would be the recovery alone.
      const spans = events.locator('[data-kind="slice-healed"]').filter({ hasText: 'Slice 1 was down for' });
      await expect(spans).toHaveCount(round);
      await expect(panel.locator('.pw-session')).toHaveAttribute('data-state', 'connected');
      await expect(slice(panel, 1)).toHaveAttribute('data-health', 'ready');
    }
    await disconnect(page, panel);
  });

  base('makes the panel old, and says so, until there is one again', async ({ page }) => {
    await newNotebook(page);
    const panel = await openPanel(page);
    await connect(page, panel);
    wire.blocked = 'pathways-jupyter/updates';
    wire.cut(wire.blocked);
    await expect(panel).toContainText('The Jupyter server does not answer.');
    await expect(section(panel, 'slices')).toContainText(/Not watched since \d+:\d\d:\d\d:/);
    await expect(section(panel, 'slices').locator('.pw-stale .pw-slice')).toHaveCount(2);
    await expect(panel.getByRole('status').filter({ hasText: 'Connected at' })).toBeVisible();
    await expect(page.locator('#jp-main-statusbar')).toContainText('TPU: Connected at');
    await expect(page.locator('#jp-main-statusbar .pw-status .pw-tone')).toHaveClass(/pw-tone-none/);
    wire.blocked = '';
    await expect(panel.locator('.pw-stale')).toHaveCount(0);
    await expect(panel).not.toContainText('The Jupyter server does not answer.');
    await disconnect(page, panel);
  });
});
