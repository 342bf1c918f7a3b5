import { galata, test as base } from '@jupyterlab/galata';

import { expect, openPanel, section } from './helpers';

base.describe('A cluster that does not answer', () => {
  base.use({ mockSettings: galata.DEFAULT_SETTINGS });

  base('is named, with what to do', async ({ page }) => {
    const panel = await openPanel(page);
    await expect(section(panel, 'slices').getByRole('alert')).toContainText('127.0.0.1:1');
    await expect(section(panel, 'session')).toContainText('No notebook is in front.');
  });
});

base.describe('A server without the extension', () => {
  const port = Number(process.env.PATHWAYS_UI_PORT || 8931) + 1;
  base.use({ baseURL: `http://127.0.0.1:${port}` });

  base('is told from one that has it', async ({ page }) => {
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
      server.onMessage(message => socket.send(String(message).replace(/("type":"hello","version":)"[^"]+"/, '$1"99.0"')));
    });
    await page.reload();
    const panel = await openPanel(page);
    await expect(panel).toContainText(/The sidebar is version \d[\w.]*, the server extension version 99\.0\./);
    await expect(panel).toContainText('Reload the page');
  });
});
