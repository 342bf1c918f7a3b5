/** The package as it was installed, in the JupyterLab that is there: the first notebook runs beside the sidebar. */
import { expect, test } from '@playwright/test';

import { openPanel, section } from './helpers';

test('the first notebook runs to its end, and the sidebar follows it', async ({ page }) => {
  await page.goto('/lab/tree/01-connect.ipynb?reset');
  await page.waitForFunction(
    () => 'jupyterapp' in window && window.jupyterapp.commands.hasCommand('pathways-jupyter:show-panel')
  );
  // Before, the layout of this page may still be arranged.
  await page.evaluate(() => window.jupyterapp.restored);
  const panel = await openPanel(page);
  await page.evaluate(async () => {
    const { commands } = window.jupyterapp;
    const { context, sessionContext } = await commands.execute('docmanager:open', { path: '01-connect.ipynb' });
    await context.ready;
    await sessionContext.ready;
    await sessionContext.session.kernel.info;
    void commands.execute('notebook:run-all-cells');
  });
  await expect(section(panel, 'events')).toContainText(/Connected in \d+\.\d\ss\./, { timeout: 180_000 });
  await expect(section(panel, 'events')).toContainText(/Session \w+ has ended/, { timeout: 180_000 });
  await expect(page.locator('.jp-NotebookPanel [data-mime-type="application/vnd.jupyter.stderr"]')).toHaveCount(0);
});
