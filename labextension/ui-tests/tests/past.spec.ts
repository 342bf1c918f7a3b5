/** What is known of the past: a replay of the slices, and a session that was not used for long. */
import { galata, test as base } from '@jupyterlab/galata';

import {
  connect,
  disconnect,
  expect,
  LOCAL,
  newNotebook,
  openPanel,
  section,
  slice,
  start,
  test,
  withoutWorker
} from './helpers';

test('the slices are replayed as they were, and nothing can be done with them', async ({ page }) => {
  const panel = await openPanel(page);
  const slices = section(panel, 'slices');
  await expect(slice(panel, 1)).toHaveAttribute('data-health', 'ready');
  await withoutWorker(1, async () => {
    await expect(slice(panel, 1)).not.toHaveAttribute('data-health', 'ready');
  });
  await expect(slice(panel, 1)).toHaveAttribute('data-health', 'ready');

  const replay = slices.getByRole('group', { name: 'Replay of the last hour' });
  const time = replay.getByRole('slider', { name: 'Time of the slices shown' });
  await expect(time).toHaveAttribute('aria-valuetext', 'now');
  const past = slices.locator('.pw-past');
  // Step back through the changes until the one in which the slice is not ready.
  const back = replay.getByRole('button', { name: 'To the change before' });
  do {
    const at = await replay.getAttribute('data-at');
    await expect(back).toBeEnabled();
    await back.click();
    await expect.poll(() => replay.getAttribute('data-at')).not.toBe(at);
  } while ((await slice(panel, 1).getAttribute('data-health')) === 'ready');
  await expect(past.getByRole('status')).toHaveText(/^\d+:\d\d:\d\d, replay$/);
  await expect(time).toHaveAttribute('aria-valuetext', /^\d+:\d\d:\d\d$/);

  // There are no details, and a list without logs.
  await slice(panel, 0).click();
  await expect(panel.getByRole('region', { name: 'Details of Slice 0' })).toHaveCount(0);
  await slices.getByRole('button', { name: 'Show as a list' }).click();
  await expect(past.getByRole('listitem')).toHaveCount(2);
  await expect(past.getByRole('button')).toHaveText(['Back to now']);

  await past.getByRole('button', { name: 'Back to now' }).click();
  await expect(past).toHaveCount(0);
  await expect(slices.getByRole('button', { name: 'Log of slice 1, host 0' })).toBeVisible();
});

base.describe('A notebook in which no cell runs', () => {
  base.use({
    mockSettings: {
      ...galata.DEFAULT_SETTINGS,
      'pathways-jupyter:plugin': { ...LOCAL['pathways-jupyter:plugin'], idleMinutes: 0.02 }
    }
  });

  base('is asked about once: keep its slices, or disconnect', async ({ page }) => {
    await newNotebook(page, 'idle.ipynb');
    const panel = await openPanel(page);
    await connect(page, panel);
    const question = page.locator('.Toastify__toast', {
      hasText: /idle\.ipynb: no cell has run since \d+:\d\d:\d\d\./
    });
    await expect(question).toContainText('It holds 2 slices.');
    await expect(page.locator('#jp-main-statusbar .pw-status')).toHaveAttribute('title', /held so far: .* chip-hours/);
    // It is asked again if the kernel still reported something about its session in the meantime.
    await expect(async () => {
      if (await question.count()) {
        await question.getByRole('button', { name: 'Keep' }).click({ timeout: 2000 });
      }
      await expect(question).toHaveCount(0, { timeout: 2000 });
    }).toPass();

    // After another cell, it is asked about again.
    await start(page, '1 + 1');
    await question.getByRole('button', { name: 'Disconnect' }).click();
    const dialog = page.getByRole('dialog');
    await expect(dialog).toContainText('Disconnect idle.ipynb?');
    await dialog.getByRole('button', { name: 'Cancel' }).click();
    await expect(panel.locator('.pw-session')).toHaveAttribute('data-state', 'connected');
    await disconnect(page, panel);
  });
});
