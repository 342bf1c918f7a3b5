/** The panel in Notebook 7, which the same server offers beside JupyterLab. */
import { galata } from '@jupyterlab/galata';
import { expect, test } from '@playwright/test';

import { disconnect, LOCAL, openPanel, section, slice } from './helpers';

const NOTEBOOK = 'seven.ipynb';
const CONTENT = {
  cells: [],
  metadata: { kernelspec: { name: 'python3', display_name: 'Python 3' } },
  nbformat: 4,
  nbformat_minor: 5
};

test('a notebook in Notebook 7 is connected, followed and disconnected from its panel', async ({ page, request }) => {
  await request.put(`/api/contents/${NOTEBOOK}`, { data: { type: 'notebook', format: 'json', content: CONTENT } });
  await galata.Mock.mockSettings(page, [], LOCAL);
  await page.goto(`/notebooks/${NOTEBOOK}`);
  await page.waitForFunction(
    () => 'jupyterapp' in window && window.jupyterapp.commands.hasCommand('pathways-jupyter:show-panel')
  );
  // Before, the layout of this page may still be arranged.
  await page.evaluate(() => window.jupyterapp.restored);
  const panel = await openPanel(page);
  await expect(slice(panel, 1)).toHaveAttribute('data-health', 'ready');
  await expect(section(panel, 'session')).toContainText(`${NOTEBOOK} is not connected.`);

  await section(panel, 'session').getByRole('button', { name: 'Connect…' }).click();
  const dialog = page.getByRole('dialog');
  await expect(dialog.getByLabel('Slice type')).toContainText('2 of 2 free');
  await dialog.getByRole('button', { name: 'Connect', exact: true }).click();
  const session = panel.locator('.pw-session');
  await expect(session).toHaveAttribute('data-state', 'connected');
  await expect(slice(panel, 1)).toHaveAttribute('data-owner', 'this');
  await expect(section(panel, 'events')).toContainText(/Connected in \d+\.\d\ss\./);

  // A log has no tab beside the notebook, but a place below it.
  await session.getByRole('button', { name: 'Logs' }).click();
  await expect(page.locator('.pw-log pre')).not.toBeEmpty();

  await disconnect(page, panel);
  await expect(section(panel, 'events')).toContainText(/Session \w+ has ended/);
});
