/** The sidebar in another language: its own texts, and the server's sentences. */
import { test as base } from '@jupyterlab/galata';

import { expect, indicator, LOCAL, newNotebook, openPanel, section, slice, start, withoutWorker } from './helpers';

const test = base.extend({
  // Galata's own looks for the launcher by its English title.
  waitForApplication: ({ baseURL }, provide) => {
    expect(baseURL).toBeTruthy();
    return provide(page => page.locator('#jupyterlab-splash').waitFor({ state: 'detached' }));
  }
});

test.use({ mockSettings: { ...LOCAL, '@jupyterlab/translation-extension:plugin': { locale: 'de_DE' } } });

test('in German JupyterLab the panel and its events are German', async ({ page }) => {
  await newNotebook(page, 'deutsch.ipynb');
  const panel = await openPanel(page);
  await expect(slice(panel, 1)).toHaveAttribute('data-health', 'ready');
  await expect(section(panel, 'session')).toContainText('deutsch.ipynb ist nicht verbunden.');
  await expect(section(panel, 'slices')).toContainText('2 Slices, 2 bereit, 2 frei');
  await start(page, '%load_ext pathways_jupyter\n%pathways connect --local --tpu tpuv6e:2x2=2');
  const session = panel.locator('.pw-session');
  await expect(session).toHaveAttribute('data-state', 'connected');
  await expect(session.getByRole('status').first()).toContainText('Verbunden');
  await expect(indicator(page)).toHaveAttribute('data-status', 'idle');
  const events = section(panel, 'events');
  await expect(events).toContainText(/Verbunden in \d+\.\d\ss\./);
  // The stages, in the server's words.
  await events.locator('summary').first().click();
  await expect(events).toContainText('Der Dienst wird gesucht.');
  await expect(events).toContainText('Alle Slices sind zugeteilt.');

  await withoutWorker(1, async () => {
    await expect(events).toContainText('Slice 1 ist ausgefallen.');
    await expect(page.locator('.Toastify__toast--warning')).toContainText('deutsch.ipynb: Slice 1 ist ausgefallen.');
    await events.locator('summary').first().click();
    await expect(events).toContainText('Eingeschränkt: 1 von 2 Slices arbeiten.');
  });
  await expect(session).toHaveAttribute('data-state', 'connected');
  await panel.getByRole('button', { name: 'Trennen', exact: true }).click();
  await expect(session).toHaveCount(0);
  await expect(events).toContainText(/Sitzung \w+ ist beendet\. Ihre Ereignisse:/);
});
