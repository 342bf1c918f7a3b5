/** A service of many slices: they are found by a filter, and drawn in two sizes. */
import { galata, test as base } from '@jupyterlab/galata';

import { expect, hollowService, LOCAL, openPanel, reload, section, slice } from './helpers';

const NAMESPACE = 'many';
const SLICES = 30;

base.use({
  mockSettings: {
    ...galata.DEFAULT_SETTINGS,
    'pathways-jupyter:plugin': { ...LOCAL['pathways-jupyter:plugin'], namespace: NAMESPACE }
  }
});

base('many slices are filtered, walked and enlarged, also after a reload', async ({ page }) => {
  const remove = hollowService(NAMESPACE, SLICES);
  try {
    const panel = await openPanel(page);
    const slices = section(panel, 'slices');
    const shown = slices.locator('.pw-slice');
    await expect(shown).toHaveCount(SLICES);
    await expect(slices.getByRole('search').getByRole('status')).toHaveText('');
    await expect(slices.locator('.pw-label')).toHaveCount(0);

    // The tools stay above the map, and cover nothing of what follows them.
    const tools = (await slices.locator('.pw-tools').boundingBox())!;
    const summary = (await slices.getByText(`${SLICES} slices, `).boundingBox())!;
    expect(summary.y).toBeGreaterThanOrEqual(tools.y + tools.height);

    const filter = slices.getByRole('searchbox', { name: 'Filter slices by number, state or owner' });
    await filter.fill('starting 10-19');
    await expect(shown).toHaveCount(10);
    await expect(slices.getByRole('status')).toHaveText('10 of 30');
    // The arrow keys walk what is shown.
    const map = slices.getByRole('listbox');
    await map.focus();
    await page.keyboard.press('ArrowRight');
    await page.keyboard.press('Enter');
    await expect(panel.getByRole('region', { name: 'Details of Slice 11' })).toBeVisible();
    await page.keyboard.press('Escape');
    await page.keyboard.press('End');
    await page.keyboard.press('Enter');
    await expect(panel.getByRole('region', { name: 'Details of Slice 19' })).toBeVisible();
    await page.keyboard.press('Escape');

    await filter.fill('mine');
    await expect(slices).toContainText('No slice fits “mine”.');
    await slices.getByRole('button', { name: 'Show all' }).click();
    await expect(shown).toHaveCount(SLICES);

    const saved = page.waitForRequest(
      request => request.method() === 'PUT' && /"zoom":\s*"chips"/.test(request.postData() ?? '')
    );
    await filter.fill('7');
    await slices.getByRole('button', { name: 'Show slices with chips' }).click();
    await expect(slices.locator('.pw-label')).toHaveText(/7/);
    await saved;
    await reload(page);
    await expect(filter).toHaveValue('7');
    await expect(slices.locator('.pw-label')).toHaveText(/7/);
    await expect(slice(panel, 7)).toHaveCount(1);
  } finally {
    remove();
  }
});
