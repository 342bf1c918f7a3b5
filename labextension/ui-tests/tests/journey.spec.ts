import { connect, disconnect, expect, healthSeen, killWorker, openPanel, proxies, section, slice, start, test, newNotebook } from './helpers';

test('a notebook connects through the dialog, sees a slice go down and heal, and disconnects while a cell runs', async ({ page }) => {
  await newNotebook(page);
  const panel = await openPanel(page);
  await connect(page, panel);
  await expect(panel.locator('.pw-session')).toContainText('2 × tpuv6e:2x2');
  await expect(slice(panel, 0)).toHaveClass(/pw-mine/);
  await expect(slice(panel, 1)).toHaveClass(/pw-mine/);
  await expect(page.locator('.jp-CodeCell').first()).toContainText('%pathways connect --local');
  await expect(page.locator('#jp-main-statusbar')).toContainText('TPU: Connected');

  const seen = await healthSeen(page, '#pathways-jupyter-panel', 1);
  killWorker(1);
  await expect(section(panel, 'events').locator('[data-kind="slice-down"]').first()).toBeVisible();
  await expect(section(panel, 'events').locator('[data-kind="slice-healed"]').first()).toBeVisible();
  await expect(slice(panel, 1)).toHaveAttribute('data-health', 'ready');
  const states = await seen();
  expect(states.length).toBeGreaterThanOrEqual(3);
  expect(states[states.length - 1]).toBe('ready');
  await expect(page.locator('.Toastify')).toContainText('lice 1');

  await start(page, 'import time; time.sleep(600)');
  await expect(page.locator('.jp-Notebook-ExecutionIndicator')).toHaveAttribute('data-status', 'busy');
  await disconnect(page, panel);
  await expect(page.locator('.jp-Notebook-ExecutionIndicator')).toHaveAttribute('data-status', 'busy');
  expect(proxies()).toBe('');
});

test('a session outlives a page that is loaded again, and ends with its kernel’s restart', async ({ page }) => {
  await newNotebook(page);
  const panel = await openPanel(page);
  await connect(page, panel);
  await page.notebook.save();
  await page.reload({ waitForIsReady: false });
  await page.locator('#jupyterlab-splash').waitFor({ state: 'detached' });
  await expect(panel).toBeVisible();
  await expect(panel.locator('.pw-session')).toHaveAttribute('data-state', 'connected');
  await page.evaluate(() => void window.jupyterapp.commands.execute('kernelmenu:restart'));
  await page.getByRole('dialog').getByRole('button', { name: 'Confirm Kernel Restart' }).click();
  await expect(panel.locator('.pw-session')).toHaveCount(0, { timeout: 60_000 });
  await expect.poll(proxies).toBe('');
  await expect(slice(panel, 0)).toHaveClass(/pw-free/);
});

test('the Running panel lists a session, and ends it', async ({ page }) => {
  await newNotebook(page);
  const panel = await openPanel(page);
  await connect(page, panel, 1);
  await page.sidebar.openTab('jp-running-sessions');
  const item = page.getByRole('region', { name: 'Pathways sessions Section' }).getByRole('treeitem');
  await expect(item).toContainText('Connected');
  await item.hover();
  await item.locator('.jp-RunningSessions-itemShutdown').click();
  await expect(item).toHaveCount(0);
  await expect.poll(proxies).toBe('');
});

test('the pictures in a notebook stay live while a cell runs', async ({ page }) => {
  await newNotebook(page);
  const panel = await openPanel(page);
  await connect(page, panel);
  const notebook = page.locator('.jp-NotebookPanel');
  for (const command of ['%pathways slices', '%pathways events']) {
    await start(page, command);
  }
  await expect(notebook.locator('.pw-slice.pw-mine')).toHaveCount(2);
  await expect(notebook.locator('.pw-timeline')).toContainText('Connected');
  await start(page, 'import time; time.sleep(600)');
  await expect(page.locator('.jp-Notebook-ExecutionIndicator')).toHaveAttribute('data-status', 'busy');
  const seen = await healthSeen(page, '.jp-NotebookPanel', 1);
  killWorker(1);
  await expect(notebook.locator('.pw-timeline [data-kind="slice-healed"]')).toBeVisible();
  await expect(notebook.locator('.pw-slice[data-slice$="/1"]')).toHaveAttribute('data-health', 'ready');
  expect((await seen()).length).toBeGreaterThanOrEqual(3);
  await expect(page.locator('.jp-Notebook-ExecutionIndicator')).toHaveAttribute('data-status', 'busy');
  await disconnect(page, panel);
});
