/** Every state of the panel in words, and as a picture at JupyterLab's own width, light and dark. */
import { galata, test as base } from '@jupyterlab/galata';

import {
  connect,
  disconnect,
  expect,
  newNotebook,
  openPanel,
  picture,
  PORT,
  section,
  slice,
  test,
  unfold,
  VISITED,
  withEmbeddedContext,
  withoutWorker
} from './helpers';

for (const [theme, look] of VISITED) {
  test(`a session from connecting to its end (${look})`, async ({ page }) => {
    await page.theme.setTheme(theme);
    await newNotebook(page, 'tpus.ipynb');
    const panel = await openPanel(page);
    await expect(slice(panel, 1)).toHaveAttribute('data-health', 'ready');
    await picture(page, `state-free-${look}`);
    await connect(page, panel);
    await expect(slice(panel, 1)).toHaveAttribute('data-owner', 'this');
    await expect(section(panel, 'events')).toContainText(/Connected in \d+\.\d\ss\./);
    await picture(page, `state-connected-${look}`);

    await withoutWorker(1, async () => {
      const session = panel.locator('.pw-session');
      await expect(session).toHaveAttribute('data-state', 'degraded');
      await expect(session.getByRole('status').first()).toContainText('Degraded, 1 of 2 slices');
      await expect(session).toContainText('Slice 1 is down.');
      await expect(session).toContainText('4 of 8');
      await expect(page.locator('#jp-main-statusbar')).toContainText('TPU: Degraded, 1 of 2 slices');
      await expect(page.locator('#jp-main-statusbar .pw-tone')).toHaveClass(/pw-tone-warn/);
      // The slice is down and still belongs to this notebook, so it is not free.
      await expect(slice(panel, 1)).toHaveAttribute('data-owner', 'this');
      await expect(section(panel, 'slices')).toContainText('2 in this notebook, 0 free');
      await expect(page.locator('.Toastify__toast--warning')).toContainText('tpus.ipynb: Slice 1 is down.');
      await picture(page, `state-degraded-${look}`);
      await section(panel, 'slices').getByRole('button', { name: 'Show as a list' }).click();
      await picture(page, `state-list-${look}`);
    });
    await expect(panel.locator('.pw-session')).toHaveAttribute('data-state', 'connected');
    // The same notification now reports the recovery, and closes by itself.
    await expect(page.locator('.Toastify__toast')).toHaveCount(0);

    await disconnect(page, panel);
    await expect(section(panel, 'events')).toContainText(/Session \w+ has ended/);
    await expect(section(panel, 'events')).toContainText('Slice 1 is down.');
    await picture(page, `state-ended-${look}`);
    await unfold(panel, 'Services & proxies');
    await expect(section(panel, 'services')).toContainText('There are no proxies.');
  });

  test(`two notebooks with one slice each are distinguished (${look})`, async ({ page }) => {
    await page.theme.setTheme(theme);
    const panel = await openPanel(page);
    await newNotebook(page, 'one.ipynb');
    await connect(page, panel, 1);
    await newNotebook(page, 'two.ipynb');
    await expect(section(panel, 'session')).toContainText('two.ipynb is not connected.');
    await connect(page, panel, 1, 1);
    await expect(slice(panel, 0)).toHaveAttribute('data-owner', 'mine');
    await expect(slice(panel, 1)).toHaveAttribute('data-owner', 'this');
    await expect(section(panel, 'slices')).toContainText('1 in this notebook, 1 in my other notebooks, 0 free');
    await expect(section(panel, 'slices').getByRole('list', { name: 'Legend' })).toContainText('☆ my other notebooks');
    await picture(page, `state-two-${look}`);
    // A third one has to wait.
    await newNotebook(page, 'three.ipynb');
    await section(panel, 'session').getByRole('button', { name: 'Connect when free…' }).click();
    await expect(page.getByRole('dialog').getByLabel('Wait for slices that are taken')).toBeChecked();
    await page.getByRole('dialog').getByRole('button', { name: 'Cancel' }).click();
    await page.notebook.activate('two.ipynb');

    await withoutWorker(1, async () => {
      // The slice has the same name in the map, the session, the events and the notification.
      await expect(slice(panel, 1)).not.toHaveAttribute('data-health', 'ready');
      await expect(slice(panel, 0)).toHaveAttribute('data-health', 'ready');
      for (const place of [panel.locator('.pw-session'), section(panel, 'events'), page.locator('.Toastify')]) {
        await expect(place).toContainText('Slice 1 (your 0) is down.');
      }
      await picture(page, `state-two-degraded-${look}`);
    });
    await expect(panel.locator('.pw-session')).toHaveAttribute('data-state', 'connected');
    await section(panel, 'slices').getByRole('button', { name: 'Show as a list' }).click();
    const rows = section(panel, 'slices').getByRole('listitem');
    await expect(rows.nth(0)).toContainText('my other notebook one.ipynb');
    await expect(rows.nth(1)).toContainText('Slice 1 (your 0)');
    await expect(rows.nth(1)).toContainText('this notebook');
    await disconnect(page, panel);
    await page.notebook.activate('one.ipynb');
    await expect(slice(panel, 0)).toHaveCount(0);
    await disconnect(page, panel);
  });

  base.describe(`Without settings (${look})`, () => {
    base.use({ mockSettings: galata.DEFAULT_SETTINGS });

    base('a changed context empties the panel, and is named', async ({ page }) => {
      await page.theme.setTheme(theme);
      await newNotebook(page);
      const panel = await openPanel(page);
      await unfold(panel, 'Services & proxies');
      const slices = section(panel, 'slices');
      await expect(slices.getByRole('alert')).toContainText('127.0.0.1:1');
      await withEmbeddedContext(async () => {
        await expect(slices).toContainText('in pathways-local / default');
        await expect(slice(panel, 1)).toHaveAttribute('data-health', 'ready');
        await expect(section(panel, 'services')).toContainText('There are no proxies.');
        await expect(section(panel, 'session').locator('.pw-line')).toContainText('--tpu tpuv6e:2x2=2');
      });
      await expect(slices).toContainText('in unreachable / default');
      await expect(slices.locator('.pw-slice')).toHaveCount(0);
      await expect(slices.getByRole('alert')).toContainText('127.0.0.1:1');
      await expect(panel.getByRole('alert')).toHaveCount(1);
      await expect(section(panel, 'services')).not.toContainText('There are no proxies.');
      await expect(section(panel, 'session').locator('.pw-line')).toHaveCount(0);
      await picture(page, `state-unreachable-${look}`);
    });
  });

  base.describe(`First use (${look})`, () => {
    base.use({ baseURL: `http://127.0.0.1:${PORT + 2}` });

    base('one calm card says what to do', async ({ page }) => {
      await page.theme.setTheme(theme);
      const panel = await openPanel(page);
      await expect(panel).toContainText('No cluster is configured yet.');
      await expect(panel.getByRole('alert')).toHaveCount(0);
      await expect(panel).not.toContainText('--');
      await picture(page, `state-nothing-${look}`);
      await panel.getByRole('button', { name: 'Open the quickstart' }).click();
      await expect(page.locator('.jp-NotebookPanel')).toContainText('TPUs in this notebook');
    });
  });
}
