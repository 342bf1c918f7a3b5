/** The panel as it comes to life, from no cluster to a connected notebook, in narrow, wide, low and high windows. */
import { IJupyterLabPageFixture, test as base } from '@jupyterlab/galata';
import { Locator } from '@playwright/test';

import { expect, indicator, newNotebook, openPanel, picture, PORT, section, slice, start, widen } from './helpers';

/** How a notebook gets its first cluster. */
const WAYS: { readonly [way: string]: (page: IJupyterLabPageFixture, panel: Locator) => Promise<void> } = {
  'a cell': page => start(page, '%load_ext pathways_jupyter\n%pathways connect --local --tpu tpuv6e:2x2=2'),
  'the dialog': async (page, panel) => {
    await panel.getByRole('button', { name: 'Connect…' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Connect', exact: true }).click();
  },
  'the welcome card': async (page, panel) => {
    await panel.getByRole('button', { name: 'Start the embedded cluster' }).click();
    await expect(slice(panel, 1)).toHaveAttribute('data-health', 'ready');
    await expect.poll(() => faults(panel)).toEqual([]);
    await section(panel, 'session').getByRole('button', { name: 'Connect…' }).click();
    const dialog = page.getByRole('dialog');
    await expect(dialog.getByLabel('Slice type')).toContainText('2 of 2 free');
    await dialog.getByRole('button', { name: 'Connect', exact: true }).click();
  }
};

const END = `
%load_ext pathways_jupyter
%pathways disconnect
from pathways_jupyter.local import cluster
cluster.down(); print('it has ended')`;

/** What is wrong with the panel's layout at this moment. */
function faults(panel: Locator): Promise<string[]> {
  return panel.evaluate(node => {
    const found: string[] = [];
    const { right, bottom } = node.getBoundingClientRect();
    const shown = [...node.querySelectorAll('*')].filter(each => each.getClientRects().length > 0);
    for (const each of shown) {
      const beyond = each.getBoundingClientRect().right - right;
      // What is cut with an ellipsis is whole in its tooltip.
      if (beyond > 1 && !each.closest('.pw-oneline, [title]')) {
        found.push(`${each.outerHTML.slice(0, 80)} ends ${beyond} px beyond the panel`);
      }
    }
    const sections = shown.filter(each => each.matches('[data-section]'));
    const lowest = Math.max(
      ...shown.map(each => (each.matches('.lm-Panel, .pw-sections') ? 0 : each.getBoundingClientRect().bottom))
    );
    for (const each of sections) {
      const hidden = each.scrollHeight - each.clientHeight;
      if (hidden > 1 && lowest < bottom - 2) {
        found.push(`${each.getAttribute('data-section')} hides ${hidden} px above ${bottom - lowest} px of blank`);
      }
    }
    return found;
  });
}

for (const width of [250, 400]) {
  for (const height of [600, 900]) {
    base.describe(`In ${width} x ${height} pixels`, () => {
      base.use({ baseURL: `http://127.0.0.1:${PORT + 2}`, viewport: { width: 1200, height } });

      for (const [way, connect] of Object.entries(WAYS)) {
        base(`nothing is cut off when the first connect comes from ${way}`, async ({ page }) => {
          await newNotebook(page);
          const panel = await openPanel(page);
          await widen(page, panel, width);
          await expect(panel).toContainText('No cluster is configured yet.');
          expect(await faults(panel)).toEqual([]);
          try {
            await connect(page, panel);
            await expect(panel.locator('.pw-session')).toHaveAttribute('data-state', 'connected');
            await expect(slice(panel, 1)).toHaveAttribute('data-owner', 'this');
            await expect(section(panel, 'events')).toContainText('Connected in');
            await expect(indicator(page)).toHaveAttribute('data-status', 'idle');
            await expect.poll(() => faults(panel)).toEqual([]);
            await picture(page, `life-${way.replace(/ /g, '-')}-${width}x${height}`);
          } finally {
            // Also for the next test, which begins without a cluster.
            await start(page, END);
            await expect(page.locator('.jp-OutputArea-output').last()).toContainText('it has ended');
          }
        });
      }
    });
  }
}
