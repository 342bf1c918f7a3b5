/** What is known of the past: a replay of the slices. */
import { expect, openPanel, section, slice, test, withoutWorker } from './helpers';

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
