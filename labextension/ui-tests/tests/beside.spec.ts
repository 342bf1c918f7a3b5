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
