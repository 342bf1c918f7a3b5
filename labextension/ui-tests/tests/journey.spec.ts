import {
  connect,
  disconnect,
  expect,
  indicator,
  newNotebook,
  openPanel,
  proxies,
  reload,
  section,
  setSetting,
  slice,
  start,
  test,
  withoutWorker
} from './helpers';

test('a notebook connects through the dialog, sees a slice go down and recover, and disconnects while a cell runs', async ({
  page
}) => {
  await newNotebook(page);
  const panel = await openPanel(page);
  await connect(page, panel);
  await expect(panel.locator('.pw-session')).toContainText('2 slices of tpuv6e:2x2 (8 chips)');
  await expect(slice(panel, 0)).toHaveAttribute('data-owner', 'this');
  await expect(slice(panel, 1)).toHaveAttribute('data-owner', 'this');
  await expect(page.locator('.jp-CodeCell').first()).toContainText('%pathways connect --local');
  await expect(page.locator('#jp-main-statusbar')).toContainText('TPU: Connected');

  await withoutWorker(1, async () => {
    await expect(slice(panel, 1)).not.toHaveAttribute('data-health', 'ready');
    await expect(section(panel, 'events').locator('[data-kind="slice-down"]').first()).toBeVisible();
    await expect(page.locator('.Toastify')).toContainText('lice 1');
  });
  await expect(section(panel, 'events').locator('[data-kind="slice-healed"]').first()).toBeVisible();
  await expect(slice(panel, 1)).toHaveAttribute('data-health', 'ready');

  await start(page, 'import time; time.sleep(600)');
  await expect(indicator(page)).toHaveAttribute('data-status', 'busy');
  // While a cell runs, disconnecting asks for confirmation.
  const dialog = page.getByRole('dialog');
  await panel.getByRole('button', { name: 'Disconnect' }).click();
  await expect(dialog).toContainText('A cell is running: if it uses the TPUs, it fails.');
  await dialog.getByRole('button', { name: 'Cancel' }).click();
  await expect(panel.locator('.pw-session')).toHaveAttribute('data-state', 'connected');
  await panel.getByRole('button', { name: 'Disconnect' }).click();
  await dialog.getByRole('button', { name: 'Disconnect' }).click();
  await expect(panel.locator('.pw-session')).toHaveCount(0, { timeout: 60_000 });
  await expect(indicator(page)).toHaveAttribute('data-status', 'busy');
  await expect.poll(proxies).toBe('');
});

test('a session survives a reload of the page, and ends when its kernel restarts', async ({ page }) => {
  await newNotebook(page);
  const panel = await openPanel(page);
  await connect(page, panel);
  await page.notebook.save();
  await reload(page);
  await expect(panel).toBeVisible();
  await expect(panel.locator('.pw-session')).toHaveAttribute('data-state', 'connected');
  await page.evaluate(() => void window.jupyterapp.commands.execute('kernelmenu:restart'));
  await page.getByRole('dialog').getByRole('button', { name: 'Confirm Kernel Restart' }).click();
  await expect(panel.locator('.pw-session')).toHaveCount(0, { timeout: 60_000 });
  await expect.poll(proxies).toBe('');
  await expect(slice(panel, 0)).toHaveAttribute('data-owner', 'free');
});

test('the Running panel lists and disconnects a session, which the status bar shows if that is wanted', async ({
  page
}) => {
  let passes = true;
  await page.routeWebSocket(/pathways-jupyter\/updates/, socket => {
    const server = socket.connectToServer();
    server.onMessage(message => {
      if (passes) {
        socket.send(message);
      }
    });
  });
  await page.reload();
  await newNotebook(page);
  const panel = await openPanel(page);
  await connect(page, panel, 1);
  // A setting is followed at once, and not only with the next update from the server.
  const item = page.locator('#jp-main-statusbar .pw-status');
  await expect(item).toBeVisible();
  passes = false;
  await setSetting(page, 'statusBar', false);
  await expect(item).toBeHidden();
  await setSetting(page, 'statusBar', true);
  await expect(item).toBeVisible();
  passes = true;

  await page.sidebar.openTab('jp-running-sessions');
  const running = page.getByRole('region', { name: 'Pathways sessions Section' }).getByRole('treeitem');
  await expect(running).toContainText('Connected');
  await running.hover();
  await running.locator('.jp-RunningSessions-itemShutdown').click();
  await expect(running).toHaveCount(0);
  await expect.poll(proxies).toBe('');
});

test('the widgets in a notebook stay live while a cell runs', async ({ page }) => {
  await newNotebook(page);
  const panel = await openPanel(page);
  await connect(page, panel);
  for (const command of ['%pathways slices', '%pathways events']) {
    await start(page, command);
  }
  const cells = page.locator('.jp-NotebookPanel .jp-CodeCell');
  const picture = cells.nth(1).getByRole('listitem', { name: /^slice 1, / });
  const events = cells.nth(2).locator('.jp-OutputArea');
  await expect(picture).toHaveAccessibleName(/this notebook/);
  await expect(events).toContainText('Connected');
  await start(page, 'import time; time.sleep(600)');
  await expect(indicator(page)).toHaveAttribute('data-status', 'busy');
  await withoutWorker(1, async () => {
    await expect(picture).toHaveAccessibleName(/starting|down/);
    await expect(events).toContainText('Slice 1 is down.');
  });
  await expect(events).toContainText('Slice 1 is placed on pathways-cluster-worker-1 again.');
  await expect(picture).toHaveAccessibleName(/this notebook/);
  await expect(indicator(page)).toHaveAttribute('data-status', 'busy');
  await disconnect(page, panel, { busy: true });
});
