/** A notebook of this machine whose kernel runs in the lab's pod: from `kernel add` to its end. */
import {
  connect,
  disconnect,
  expect,
  indicator,
  newNotebook,
  openPanel,
  picture,
  reload,
  section,
  slice,
  start,
  test
} from './helpers';

const KERNEL = 'pathways-embedded-cluster';

test('a kernel beside the chips is one of this JupyterLab, and so is its session', async ({ page }) => {
  await newNotebook(page, 'Add.ipynb');
  await start(page, '!pathways-jupyter kernel add --local');
  await expect(page.locator('.jp-OutputArea-output')).toContainText('Python beside the chips (embedded cluster)');
  await page.evaluate(() => window.jupyterapp.serviceManager.kernelspecs.refreshSpecs());
  await expect(async () => {
    const specs = await page.evaluate(() =>
      Object.keys(window.jupyterapp.serviceManager.kernelspecs.specs?.kernelspecs ?? {})
    );
    expect(specs).toContain(KERNEL);
  }).toPass();

  const panel = await openPanel(page);
  const opening = newNotebook(page, 'Beside.ipynb', KERNEL);
  // While there is no pod yet, the sidebar says what the kernel waits for.
  await expect(section(panel, 'session')).toContainText('The kernel of Beside.ipynb starts beside the chips.');
  await picture(page, 'beside-starting');
  await opening;
  await expect(section(panel, 'session')).toContainText('Its kernel runs beside the chips, in');

  // What connects it names no cluster: --local would be another one there.
  await section(panel, 'session').getByRole('button', { name: 'Connect…' }).click();
  const dialog = page.getByRole('dialog');
  await expect(dialog.getByLabel('Cluster')).toBeDisabled();
  await expect(dialog.getByLabel('Slice type')).toContainText('2 of 2 free');
  await expect(dialog.locator('.pw-line')).toHaveText('%pathways connect --tpu tpuv6e:2x2=2');
  await picture(page, 'beside-dialog');
  await dialog.getByRole('button', { name: 'Cancel' }).click();
  await connect(page, panel, 1);
  await expect(section(panel, 'session')).toContainText('Its kernel runs beside the chips, in');
  await expect(section(panel, 'events')).toContainText('No tunnel: direct');
  await expect(slice(panel, 0)).toHaveAttribute('data-owner', 'this');
  await picture(page, 'beside-connected');

  await start(page, 'import jax.numpy as jnp; float(jnp.ones(8).sum())');
  await expect(page.locator('.jp-NotebookPanel:visible .jp-OutputArea-output').last()).toContainText('8.0');
  await expect(indicator(page)).toHaveAttribute('data-status', 'idle');

  // After a reload too, and it is disconnected from here.
  await reload(page);
  await openPanel(page);
  await expect(panel.locator('.pw-session')).toHaveAttribute('data-state', 'connected');
  await disconnect(page, panel);
  await expect(section(panel, 'session')).toContainText('Beside.ipynb is not connected.');
  await picture(page, 'beside-disconnected');
  await page.evaluate(() => window.jupyterapp.serviceManager.sessions.shutdownAll());
});

test('a notebook moves beside the chips and back, in the same panel', async ({ page }) => {
  await newNotebook(page, 'Moves.ipynb');
  const panel = await openPanel(page);
  const last = page.locator('.jp-NotebookPanel:visible .jp-OutputArea-output').last();
  await start(page, '%load_ext pathways_jupyter\n%pathways connect --local --tpu tpuv6e:2x2=1 --wait 60');
  await expect(panel.locator('.pw-session')).toHaveAttribute('data-state', 'connected');
  await start(page, 'import jax.numpy as jnp\nx = jnp.arange(8.0)\nx.shape');
  await expect(last).toContainText('(8,)');
  await start(page, '%pathways move --yes');
  await expect(last).toContainText('The next cell runs beside the chips (embedded cluster), with 1 variable');
  await expect(section(panel, 'session')).toContainText('Its kernel runs beside the chips, in');
  await picture(page, 'beside-moved');
  await start(page, 'print("sum", float(x.sum()))');
  await expect(last).toContainText('sum 28.0');
  await expect(panel.locator('.pw-session')).toHaveAttribute('data-state', 'connected');
  await expect(section(panel, 'events')).toContainText('No tunnel: direct');
  await picture(page, 'beside-arrived');

  await start(page, '%pathways move --yes');
  await expect(last).toContainText('The next cell runs on your machine, with 1 variable');
  // A cell that comes at once is not run in the kernel that ends, and says so.
  await expect(async () => {
    await start(page, 'print("again", float(x.sum()))');
    await expect(last).toContainText(/again 28.0|Run the cell again/);
    await expect(last).toContainText('again 28.0', { timeout: 100 });
  }).toPass();
  await expect(section(panel, 'session')).not.toContainText('beside the chips');
  await expect(panel.locator('.pw-session')).toHaveAttribute('data-state', 'connected');
  await picture(page, 'beside-back');
  await page.evaluate(() => window.jupyterapp.serviceManager.sessions.shutdownAll());
});
