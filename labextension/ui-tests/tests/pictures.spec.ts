/** The pictures in docs/images: taken here, looked at by people, and kept when PATHWAYS_UI_IMAGES says where. */
import * as path from 'path';

import { connect, disconnect, expect, killWorker, openPanel, section, slice, start, test, THEMES, newNotebook } from './helpers';

const IMAGES = process.env.PATHWAYS_UI_IMAGES || path.join(__dirname, '..', 'test-results');

for (const [theme, name] of THEMES) {
  test(`the sidebar with a connected notebook, ${name}`, async ({ page }) => {
    await page.theme.setTheme(theme);
    await newNotebook(page, 'tpus.ipynb');
    const panel = await openPanel(page);
    await connect(page, panel);
    await start(page, 'import jax; jax.devices()[:2]');
    await start(page, '%pathways slices');
    await expect(page.locator('.jp-OutputArea .pw-map').first()).toBeVisible();
    killWorker(1);
    await expect(section(panel, 'events').locator('[data-kind="slice-healed"]').first()).toBeVisible();
    await expect(slice(panel, 1)).toHaveAttribute('data-health', 'ready');
    // What the notifications say stands in the notebook, too; they would cover it.
    const toasts = page.locator('.Toastify__toast');
    await expect(toasts).toHaveCount(2);
    for (const _news of ['down', 'healed']) {
      await toasts.first().locator('.jp-Notification-Toast-Close').click();
    }
    await expect(toasts).toHaveCount(0);
    await page.screenshot({ path: path.join(IMAGES, `sidebar-${name}.png`) });
    await disconnect(page, panel);
  });
}
