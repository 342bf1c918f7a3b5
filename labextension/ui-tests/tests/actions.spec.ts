/** Actions other than the dialog's Connect: drag, reconnect, follow a notification, download a log. */
import * as fs from 'fs';

import {
  connect,
  disconnect,
  expect,
  kubectl,
  newNotebook,
  openPanel,
  proxies,
  section,
  setSetting,
  slice,
  test,
  unfold,
  withoutWorker
} from './helpers';

const LINE = '%load_ext pathways_jupyter\n%pathways connect --local --tpu tpuv6e:2x2=2';

test('the line that connects can be dragged into a cell', async ({ page }) => {
  await newNotebook(page);
  const panel = await openPanel(page);
  const line = section(panel, 'session').locator('.pw-line');
  await expect(line).toHaveText('%pathways connect --local --tpu tpuv6e:2x2=2');
  await line.dragTo(page.locator('.jp-CodeCell .cm-content').first());
  await expect.poll(() => page.notebook.getCellTextInput(0)).toBe(LINE);
});

test('the dialog inserts a cell without running it', async ({ page }) => {
  await newNotebook(page);
  const panel = await openPanel(page);
  await section(panel, 'session').getByRole('button', { name: 'Connect…' }).click();
  const dialog = page.getByRole('dialog');
  await expect(dialog.getByLabel('Slice type')).toContainText('2 of 2 free');
  await dialog.getByRole('button', { name: 'Insert cell' }).click();
  await expect.poll(() => page.notebook.getCellTextInput(0)).toBe(LINE);
  await expect(panel.getByRole('button', { name: 'Connect…' })).toBeVisible();
  expect(proxies()).toBe('');

  // In a long notebook it is shown, also where the active cell was scrolled away: once empty, then with the line.
  await page.evaluate(() => {
    const notebook = (window.jupyterapp.shell.currentWidget as any).content;
    const long = Array.from({ length: 30 }, () => ({ cell_type: 'code', source: '# a line\n'.repeat(10) }));
    notebook.model.sharedModel.insertCells(1, [...long, { cell_type: 'code', source: '' }]);
    notebook.activeCellIndex = 31;
  });
  const first = page.locator('.jp-NotebookPanel:visible .jp-Cell[data-windowed-list-index="0"]');
  const active = page.locator('.jp-NotebookPanel:visible .jp-Cell.jp-mod-active');
  for (const index of [31, 32]) {
    await page.evaluate(() => (window.jupyterapp.shell.currentWidget as any).content.scrollToItem(0));
    await expect(first).toBeInViewport();
    await section(panel, 'session').getByRole('button', { name: 'Connect…' }).click();
    await dialog.getByRole('button', { name: 'Insert cell' }).click();
    await expect(active).toBeInViewport({ ratio: 1 });
    await expect(active).toContainText('%pathways connect');
    await expect(active).toHaveAttribute('data-windowed-list-index', String(index));
  }
});

test('“More” adds what a proxy may need to the line', async ({ page }) => {
  await newNotebook(page);
  const panel = await openPanel(page);
  await section(panel, 'session').getByRole('button', { name: 'Connect…' }).click();
  const dialog = page.getByRole('dialog');
  await expect(dialog.getByLabel('Slice type')).toContainText('2 of 2 free');
  await expect(dialog.getByLabel('Bucket')).toBeHidden();
  await dialog.getByText('More', { exact: true }).click();
  await dialog.getByLabel('Bucket').fill('gs://bucket/path');
  // Several values become several options, and a value may begin with dashes.
  await dialog.getByLabel('Proxy options').fill('--xla_one=1 --xla_two=2');
  const options = ' --gcs-bucket=gs://bucket/path --proxy-options=--xla_one=1 --proxy-options=--xla_two=2';
  await expect(dialog.locator('.pw-line')).toHaveText(LINE.split('\n')[1] + options);
  await dialog.getByRole('button', { name: 'Insert cell' }).click();
  await expect.poll(() => page.notebook.getCellTextInput(0)).toBe(LINE + options);
});

test('Connect never closes the dialog without an effect', async ({ page }) => {
  await newNotebook(page);
  const panel = await openPanel(page);
  await section(panel, 'session').getByRole('button', { name: 'Connect…' }).click();
  const dialog = page.getByRole('dialog');
  await expect(dialog.getByLabel('Slice type')).toContainText('2 of 2 free');
  const buttons = ['Connect', 'Insert cell'].map(name => dialog.getByRole('button', { name, exact: true }));
  await dialog.getByLabel('Number of slices').fill('0');
  for (const button of buttons) {
    await expect(button).toBeDisabled();
  }
  await dialog.getByLabel('Number of slices').fill('1');
  for (const button of buttons) {
    await expect(button).toBeEnabled();
  }
  // Without an answer from the cluster, the type is a text field.
  await dialog.getByLabel('Cluster').selectOption('unreachable');
  await expect(dialog).toContainText('127.0.0.1:1');
  await expect(dialog).toContainText('Required, for example tpuv6e:2x2.');
  for (const button of buttons) {
    await expect(button).toBeDisabled();
  }
  await dialog.getByLabel('Slice type').press('Enter');
  await expect(dialog).toBeVisible();
  await dialog.getByLabel('Slice type').fill('tpuv6e:2x2');
  await expect(buttons[0]).toBeEnabled();
  await dialog.getByRole('button', { name: 'Cancel' }).click();

  // Without an answer from the server, the dialog says so, beside the cluster that it was to connect to.
  await page.route(/pathways-jupyter\/contexts/, route =>
    route.fulfill({ status: 500, json: { message: 'A fault.' } })
  );
  await setSetting(page, 'local', false);
  await section(panel, 'session').getByRole('button', { name: 'Connect…' }).click();
  await expect(dialog).toContainText('A fault.');
  await dialog.getByRole('button', { name: 'Cancel' }).click();
});

test('a lost proxy is reported, and reconnecting works from the notification and the panel', async ({ page }) => {
  await newNotebook(page);
  const panel = await openPanel(page);
  await connect(page, panel);
  const session = panel.locator('.pw-session');
  const lost = proxies();
  kubectl('delete', lost.trim(), '--wait=false');
  await expect(session).toHaveAttribute('data-state', 'lost');
  await expect(session.getByRole('alert')).toContainText('Its arrays on TPUs are lost. “Reconnect” gets a new proxy');
  await page.locator('.Toastify__toast--error').getByRole('button', { name: 'Reconnect' }).click();
  await expect(session).toHaveAttribute('data-state', 'connected');
  // The incident is over, and its notification closed.
  await expect(page.locator('.Toastify__toast--error')).toHaveCount(0);
  const renewed = kubectl('get', 'pods', '-l', 'pathways-jupyter/session', '-o', 'jsonpath={.items[*].metadata.uid}');
  // A proxy that works is not replaced without a question.
  await panel.getByRole('button', { name: 'Reconnect…' }).click();
  await expect(page.getByRole('dialog')).toContainText('Its proxy works, and would be replaced by a new one.');
  await page.getByRole('dialog').getByRole('button', { name: 'Get a new proxy' }).click();
  await expect
    .poll(() => kubectl('get', 'pods', '-l', 'pathways-jupyter/session', '-o', 'jsonpath={.items[*].metadata.uid}'))
    .not.toContain(renewed);
  await expect(session).toHaveAttribute('data-state', 'connected');
  await expect(slice(panel, 1)).toHaveAttribute('data-owner', 'this');
  await disconnect(page, panel);
});

test('a slice that goes down is reported while the panel is hidden, and “Show” brings the panel', async ({ page }) => {
  await newNotebook(page);
  const panel = await openPanel(page);
  await connect(page, panel);
  await page.sidebar.openTab('filebrowser');
  await expect(panel).toBeHidden();
  const toasts = page.locator('.Toastify__toast', { hasText: 'lice 0' });
  await withoutWorker(0, async () => {
    await expect(toasts).toHaveClass(/Toastify__toast--warning/);
    await toasts.getByRole('button', { name: 'Show' }).click();
    await expect(panel.locator('.pw-session')).toHaveAttribute('data-state', 'degraded');
  });
  await expect(section(panel, 'events').locator('[data-kind="slice-healed"]').first()).toBeVisible();
  // A notification that was closed by “Show” does not reopen for the recovery.
  await expect(toasts).toHaveCount(0);
  await disconnect(page, panel);
});

test('a notebook that is renamed while connected is shown by its new name', async ({ page }) => {
  await newNotebook(page, 'before.ipynb');
  const panel = await openPanel(page);
  await connect(page, panel);
  await unfold(panel, 'Services & proxies');
  await expect(section(panel, 'services')).toContainText('before.ipynb');
  await page.evaluate(async () => {
    const { serviceManager, shell } = window.jupyterapp;
    const path: string = (shell.currentWidget as any).context.path;
    await serviceManager.contents.rename(path, path.replace('before', 'after'));
  });
  await expect(section(panel, 'services')).toContainText('after.ipynb');
  await expect(section(panel, 'services')).not.toContainText('before.ipynb');
  await disconnect(page, panel);
});

test('the launcher’s card opens the quickstart, which runs to its end', async ({ page }) => {
  await page.locator('.jp-LauncherCard', { hasText: 'TPU Quickstart' }).click();
  await expect(page.locator('.jp-NotebookPanel')).toContainText('TPUs in this notebook');
  const done = await page.evaluate(async () => {
    const { commands, shell } = window.jupyterapp;
    const { sessionContext } = shell.currentWidget as any;
    await sessionContext.ready;
    await commands.execute('notebook:run-all-cells');
    return (shell.currentWidget as any).content.model.cells.length as number;
  });
  expect(done).toBeGreaterThan(3);
  const outputs = page.locator('.jp-NotebookPanel .jp-OutputArea');
  await expect(outputs.last()).toContainText('JAX is as it was before');
  await expect(page.locator('.jp-NotebookPanel')).toContainText('device(7,TPU_DEVICE');
  // Its map shows the slices, although the session ended right after it.
  await expect(page.locator('.jp-NotebookPanel .pw-slice')).toHaveCount(2);
  await expect(page.locator('.jp-RenderedText[data-mime-type="application/vnd.jupyter.stderr"]')).toHaveCount(0);
  await expect.poll(proxies).toBe('');
});

test('a log can be downloaded as a file, complete', async ({ page }) => {
  const panel = await openPanel(page);
  await unfold(panel, 'Services & proxies');
  await panel.getByRole('button', { name: /Log of the resource manager/ }).click();
  const log = page.locator('.pw-log');
  await expect(log.locator('pre')).toContainText('Pathways Slices Now Ready');
  // A search changes what is shown, not what is downloaded.
  await log.getByRole('searchbox').fill('serving on');
  await log.getByRole('checkbox', { name: 'Follow' }).uncheck();
  await expect(log.getByRole('status')).toContainText('ended');
  const [download] = await Promise.all([
    page.waitForEvent('download'),
    log.getByRole('button', { name: 'Download' }).click()
  ]);
  expect(download.suggestedFilename()).toMatch(/-pathways-head-.*\.log$/);
  const taken = fs.readFileSync(await download.path(), 'utf-8');
  expect(taken).toContain('Pathways Slices Now Ready');
  // The resource manager may have written more in the meantime.
  const written = kubectl('logs', download.suggestedFilename().replace('.log', ''));
  expect(written.slice(0, taken.length)).toBe(taken);
});

test('every action is in the palette', async ({ page }) => {
  await page.evaluate(() => window.jupyterapp.commands.execute('apputils:activate-command-palette'));
  await page.locator('.lm-CommandPalette-input').fill('pathways');
  const items = page.locator('.lm-CommandPalette-itemLabel');
  for (const label of [
    'Connect This Notebook to TPUs…',
    'Insert a Connect Cell…',
    'Disconnect This Notebook',
    'Reconnect This Notebook',
    'Resume This Notebook',
    'Keep This Notebook Connected',
    'Log of This Notebook’s Proxy',
    'Show Pathways',
    'Clean Up Stale Proxies',
    'Open the Pathways Quickstart Notebook',
    'Reconnect the Sidebar to the Server'
  ]) {
    await expect(items.filter({ hasText: label })).toHaveCount(1);
  }
});
