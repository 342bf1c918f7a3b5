import { openPanel, section, setSetting, slice, test, expect, newNotebook, reload, unfold } from './helpers';

test('the panel shows two slices ready and free, and the service they belong to', async ({ page }) => {
  const panel = await openPanel(page);
  await expect(slice(panel, 0)).toHaveAttribute('data-health', 'ready');
  await expect(slice(panel, 1)).toHaveAttribute('data-health', 'ready');
  await expect(section(panel, 'slices')).toContainText('2 slices, 2 ready');
  await unfold(panel, 'Services & proxies');
  await expect(section(panel, 'services')).toContainText('tpuv6e:2x2: 2 of 2 free');
});

test('the list shows the same as the map, and fits into the panel', async ({ page }) => {
  const panel = await openPanel(page);
  await panel.getByRole('button', { name: 'Show as a list' }).click();
  const rows = section(panel, 'slices').getByRole('list', { name: 'Slices' }).getByRole('listitem');
  await expect(rows).toHaveCount(2);
  await expect(rows.nth(1)).toContainText('Slice 1');
  await expect(rows.nth(1)).toContainText('free');
  await unfold(panel, 'Services & proxies');
  await expect(section(panel, 'services')).toContainText('2 of 2 free');
  // At JupyterLab's default width nothing is cut off or scrolled sideways.
  const width = await panel.evaluate(node => ({ shown: node.clientWidth, needed: node.scrollWidth }));
  expect(width.shown).toBeLessThan(270);
  expect(width.needed).toBe(width.shown);
});

test('a log opens in a tab, can be searched, and is there again after a reload', async ({ page }) => {
  const panel = await openPanel(page);
  const saved = page.waitForRequest(
    request =>
      request.method() === 'PUT' &&
      /workspaces/.test(request.url()) &&
      /pathways-jupyter-log/.test(request.postData() ?? '')
  );
  await unfold(panel, 'Services & proxies');
  await panel.getByRole('button', { name: /Log of the resource manager/ }).click();
  const log = page.locator('.pw-log');
  await expect(log.locator('pre')).toContainText('Pathways Slices Now Ready');
  await log.getByRole('searchbox').fill('serving on');
  await expect(log.locator('pre')).toHaveText(/Pathways Server serving on/);
  await expect(log.locator('pre')).not.toContainText('Now Ready');
  await saved;
  await reload(page);
  await expect(panel).toBeVisible();
  await expect(log.locator('pre')).toContainText('Pathways Slices Now Ready');
});

test('pods and jobs of the same name in two clusters have a tab each', async ({ page }) => {
  const run = (command: string, args: object) =>
    page.evaluate(([name, given]) => window.jupyterapp.commands.execute(`pathways-jupyter:${name}`, given as any), [
      command,
      args
    ] as const);
  const scope = (namespace: string) => JSON.stringify({ context: '', namespace, session: '', kernel: '', local: true });
  const logs = page.getByRole('tab', { name: 'Log: same' });
  for (const [args, count] of [
    [{ pod: 'same', scope: scope('one') }, 1],
    [{ pod: 'same', scope: scope('two') }, 2],
    [{ job: 'same', scope: scope('two') }, 3],
    [{ pod: 'same', scope: scope('one') }, 3]
  ] as const) {
    await run('open-log', args);
    await expect(logs).toHaveCount(count);
  }
  const jobs = page.getByRole('tab', { name: 'Job: same' });
  await run('show-job', { job: 'same' });
  await expect(jobs).toHaveCount(1);
  await setSetting(page, 'local', false);
  await run('show-job', { job: 'same' });
  await expect(jobs).toHaveCount(2);
});

test('sections fold, leave their place to the others, and are as before after a reload', async ({ page }) => {
  const panel = await openPanel(page);
  await expect(section(panel, 'slices')).toContainText('2 slices, 2 ready');
  const title = (name: string) => panel.getByRole('button', { name, exact: true });
  const before = (await title('Services & proxies').boundingBox())!;
  const stored = page.waitForRequest(
    request => request.method() === 'PUT' && /pathways-jupyter:panel/.test(request.postData() ?? ''),
    { timeout: 60_000 }
  );
  await title('Events').click();
  await expect(section(panel, 'events')).toBeHidden();
  const after = (await title('Services & proxies').boundingBox())!;
  expect(after.y).toBeLessThan(before.y - 20);
  await stored;
  await reload(page);
  await expect(section(panel, 'slices')).toContainText('2 slices, 2 ready');
  await expect(section(panel, 'events')).toBeHidden();
  await expect(title('Events')).toHaveAttribute('aria-expanded', 'false');
});

test('an empty panel says what to do', async ({ page }) => {
  const panel = await openPanel(page);
  await expect(section(panel, 'session')).toContainText('No notebook is in front.');
  await newNotebook(page);
  await expect(section(panel, 'session').getByRole('button', { name: 'Connect…' })).toBeVisible();
});
